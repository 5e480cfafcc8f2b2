// Package access decides who may do what over HTTP: on the API and on the pages
// alike. A request is somebody's, who has a role; what needs a role says which.
//
//	viewer < operator < author < admin
//
// A viewer sees, an operator decides and runs, an author deploys, an admin gives
// tokens. Each may do what those before may.
package access
