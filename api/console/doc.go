// Package console is the page at /console of every server: the cluster, the log
// as it happens, compute nodes (CNs), vnets, objects and their history, at the
// head or at a seq of the past. It only reads.
//
// It owns the files of the page, which are embedded as they are (plain HTML, CSS
// and modules of JavaScript, nothing is built), and the headers that they are
// served with: a strict Content-Security-Policy, under which no other origin, no
// inline script and no inline style is loaded, and no text can become markup.
// What the page shows it asks of the server's API by GET, as any client does:
// paths, forms and filters are left to package api.
//
// In the page one worker reads the stream, filters it and paints the map of CNs;
// the page's own thread only fills a fixed number of rows, at most once for each
// frame. So a busy log costs frames of the screen, and never entries.
//
// Concurrency: Handler may be called and used by any number of goroutines.
package console
