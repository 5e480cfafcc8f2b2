// Command keep runs automations that must not do things twice.
//
// # How a command line becomes a status
//
// main is ten lines around run, which takes arguments and writers and returns
// the exit status, so that tests drive it in process and as a process. Every verb
// has a file of its own, named for it. A verb parses, calls host, engine, config
// or a store, and prints; what it decides, another package could not decide.
//
//	main.go            the process around run
//	app.go, exit.go    what all verbs share; from errors to statuses
//	ask.go, list.go    from a verb to the API; lists, pages and details of one thing
//	run.go, serve.go   the verbs that are hosts
//
// What a verb calls is below internal:
//
//	exit       statuses, and errors that carry one
//	terminal   what may reach a terminal: tables, colours, progress, problems with a line
//	config     keep.toml; trust: whose keep.toml is believed
//	project    a path on the command line, its keep.toml, its scripts
//	database   SQLite or Postgres, opened in a role
//	daemon     the one place that builds a host; its API, pages and socket; reloading
//	client     the requests of a verb: to the daemon, or to the database here
//	dev, demo  keep dev and keep demo
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
// run, dev and serve are hosts: one of them at a time has the lock of a file, which keep gateway
// shares with them by the socket.
// dev and serve answer all lists and actions, by the API on their socket. Without
// them a verb opens the database itself and asks the same API in its own process:
// lists open a file to read only; decisions (inbox do, pause, trigger, deploy, …)
// are commits of their own, in which the law is checked again, and which a host
// notices within a second. So there is one path from a verb to what it shows
// (package client), and docs/api.md names the verbs that go around it.
//
// # Mistakes
//
// A mistake in keep.toml or in a script is status 2, and all of them are reported
// at once. A verb that only needs the database works beside a mistake elsewhere
// in keep.toml: looking must not depend on a connection.
//
// # What it does not do
//
// It takes no secret as an argument, and shows none that it stores: accounts and secrets
// are in the database, sealed with the key of keep.key. It watches scripts only in keep dev
// and keep test --watch; the daemon runs what was deployed, and follows keep.toml and secrets.
package main
