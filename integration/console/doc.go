// Package console looks at the page at /console as people do, in headless
// Chromium, against servers as processes.
//
// It owns the browser that it starts, by the DevTools protocol, and how the work
// of the page's main thread is measured. Its tests skip with a reason where
// there is no Chromium (Debian's package chromium). RUTTER_SHOTS names a folder
// for pictures of each view.
//
// chromedp is used because it speaks the protocol without anything of Node,
// follows Chromium's releases, and needs no driver program beside the browser;
// only tests and benches are linked with it.
//
// Concurrency: a Browser belongs to one goroutine.
package console
