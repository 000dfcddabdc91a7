// Package libvirtcmd has the command rutter libvirt-hook, which libvirt runs as its hook
// for QEMU. What it does at each operation is package agent/vmsource/libvirt's.
package libvirtcmd
