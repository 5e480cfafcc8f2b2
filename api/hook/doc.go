// Package hook receives what services deliver: a POST to /hooks/NAME is verified over
// its raw body, made an event that is on disk, and then answered with 2xx.
//
// The checks have an order: method, name, size, signature, form of the body, id. Nothing
// is parsed before it is verified. The service's id of a delivery is the message id of the
// event, so a delivery that is repeated is one event, whichever connection it comes by and
// however often the process died in between. A delivery that was not answered may have
// become an event; the service sends it again and learns so.
package hook
