// Package rest is the HTTP kit of every surface: the API's own routes, those of
// Triton's services, and those of certificates.
//
// It owns the table of routes and the handler that is made from it, JSON bodies in
// and out, the parameters of a query, ETags, errors with their statuses, the header
// that names a change, and the count of answered requests. Words and forms of errors
// that differ between surfaces stay with the surface: it gives the endpoints for
// unknown paths and methods, and writes its errors itself. Who may ask, and how often,
// is decided in package guard.
//
// Everything here may be used concurrently, except that a Table must not change after
// its Handler was made.
package rest
