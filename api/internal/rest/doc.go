// Package rest is the HTTP kit of every surface: the API's own routes, those of
// Triton's services, and those of certificates.
//
// It owns the table of routes and its handler, JSON bodies in and out, the parameters
// of a query, ETags, errors with their statuses, the header that names a change, and
// the count of answered requests. Words and forms of errors that differ between
// surfaces stay with the surface, which has its own endpoints for unknown paths and
// methods and writes its errors itself. Access and limits are left to package guard.
//
// Everything here may be used concurrently, except that a Table must not change after
// its Handler was made.
package rest
