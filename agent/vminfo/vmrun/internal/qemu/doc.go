// Package qemu says how QEMU runs a VM with virtual hardware: which fields of a manifest
// it takes and checks (Read), its command line (Machine.Line), and what is opened for it on
// the node (Open), because it can open nothing there itself: the taps of its NICs, its
// disks, its kernel, and the sockets of QMP and of the serial console.
//
// It leaves to package isolate how a program is confined, and to package vmrun when one
// begins and ends. Its functions may be called from any goroutine.
package qemu
