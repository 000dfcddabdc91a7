// Package webcheck refuses requests that a web page can make a browser send, and
// requests whose path has more than one reading. It is asked before a request is routed.
//
// It owns four checks: of the path's form, of the origin of a browser's request, of the
// name by which the server was asked (the header Host), and of the media type of a
// body. It leaves to others who may do what (package matrix), and the form of the answer.
//
// A page of another site can make a browser send requests with the operator's client
// certificate, or to a listener that believes addresses. The origin says that the page
// is of another site. A page whose own name was moved to this server's address (DNS
// rebinding) has the right origin. Then the header Host has the page's name, which this
// server is not called.
//
// It keeps no state, and may be used concurrently.
package webcheck
