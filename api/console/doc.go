// Package console is the page at /console of every server: the cluster, the log as it
// grows, compute nodes (CNs), vnets, objects and their history, at the head or at a
// past seq. It only reads.
//
// It owns the files of the page, which are embedded unchanged (plain HTML, CSS and
// modules of JavaScript, without a build), and their headers: a strict
// Content-Security-Policy, under which no other origin, inline script or inline style
// is loaded, and no text can become markup. The page reads the server's API by GET, as
// any client does: paths, forms and filters are left to package api.
//
// In the page one worker reads the stream, filters it and paints the map of CNs. The
// page's own thread only fills a fixed number of rows, at most once per screen frame.
// So a busy log costs screen frames, and never entries.
//
// Handler may be called and used by any number of goroutines.
package console
