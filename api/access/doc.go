// Package access decides who may do what over HTTP: on the API and on the pages
// alike. A request has an identity with a role; each route says which role it needs.
//
//	viewer < operator < author < admin
//
// A viewer sees, an operator decides and runs, an author deploys, an admin gives
// tokens. Each may do what those before may.
package access
