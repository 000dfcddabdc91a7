// Package console tests the page at /console in headless Chromium, against servers as
// processes.
//
// It owns the browser that it starts, by the DevTools protocol, and the measurement of
// the page's main thread. Its tests are skipped with a reason if there is no Chromium
// (Debian's package chromium). RUTTER_SCREENSHOTS names a folder for pictures of each view.
//
// chromedp is used because it needs neither Node nor a driver program, and follows
// Chromium's releases. Only tests and benches are linked with it.
//
// Concurrency: a Browser belongs to one goroutine.
package console
