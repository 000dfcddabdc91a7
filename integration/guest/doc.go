// Package guest runs one static program, usually a compiled Go test, inside a User-Mode
// Linux guest kernel: an ordinary process that needs neither root nor KVM and boots in
// about two seconds. Tests use it for features that the machine's own kernel may lack,
// such as 802.1Q.
//
// It owns the way into the guest (spec/kernel.md, "The guest kernel for
// tests"): finding the kernel, its modules and busybox, the folder that is the
// guest's root file system, the init script, the command line, and the end of
// it all, also on a timeout. What runs inside is left to the caller. The guest
// has one CPU, a network of its own with only lo, and root.
//
// Debian has what is needed in user-mode-linux and busybox-static; Available
// says what is missing.
//
// # Concurrency
//
// Each Run has its own folder, kernel and session, so several may run at once.
// Run returns when every process that it started has ended, and starts no
// goroutine that outlives it.
package guest
