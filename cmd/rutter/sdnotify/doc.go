// Package sdnotify tells systemd what a daemon of this program does: that it is ready, what
// it does or waits for (the line Status of systemctl status), that it reloads or stops, and,
// for the watchdog of its unit, that it makes progress (sd_notify(3), systemd.service(5)).
//
// It is ours and no library, because a library has only the ten lines that send a datagram:
// what to say, when, and when not, is what this package is about.
package sdnotify
