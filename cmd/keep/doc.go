// Command keep runs automations that must not do things twice.
//
// # How a command line becomes a status
//
// main is ten lines around run, which takes arguments and writers and returns
// the exit status, so that tests drive it in process and as a process. Every verb
// has a file of its own, named for it. A verb parses, calls host, engine, config
// or a store, and prints; what it decides, another package could not decide.
//
//	main.go                    the process around run
//	app.go, exit.go, help.go   what all verbs share; errors to statuses; topics of help
//	project.go                 a path on the command line, its keep.toml, its scripts
//	store.go, session.go       the database in a role; an open project that can run
//	list.go, show.go           lists and pages, details of one thing
//	complain.go                what is wrong with files, with the line and a mark
//	text.go, table.go          what may reach a terminal, and how it is aligned
//	watch.go, page.go          keep dev
//	server.go, deployer.go     the API and the pages of keep serve and keep dev
//	login.go, call.go          links and tokens; keep api
//
// # Streams
//
// Data goes to stdout and talk to stderr. With --json there is nothing on stdout
// but the objects of package api, one or an array. Colours and progress come
// only on terminals, and NO_COLOR switches colours off.
//
// Titles, ids, payloads and errors may come from anybody's mail. Nothing of them
// reaches a terminal before clean has made controls and reordering visible;
// JSON has them as escapes, which say the same.
//
// # Processes and the database
//
// run, dev and serve are hosts: one of them at a time has the lock of a database.
// All other verbs work beside it. Lists open the file to read only; decisions
// (inbox do, pause, trigger, deploy, …) are commits of their own, in which the
// law is checked again, and which the host notices within a second.
//
// # Mistakes
//
// A mistake in keep.toml or in a script is status 2, and all of them are reported
// at once. A verb that only needs the database works beside a mistake elsewhere
// in keep.toml: looking must not depend on a connection.
//
// # What it does not do
//
// Its lists and decisions work on the database, not through the API of a running
// host: they are the same beside one and without one. It stores no secrets of
// services and takes none as arguments. It watches files only in keep dev; the
// daemon runs what was deployed.
package main
