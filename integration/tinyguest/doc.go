// Package tinyguest makes the small Linux that tests boot in a real QEMU, also one that
// emulates its processor: Debian's kernel for virtual machines, and an initramfs of busybox.
//
// It owns what the guest does by itself and its serial console. It leaves to others: the
// QEMU that runs it.
package tinyguest
