package projections

import "rutter/log"

// Bounds on what one object may hold, which package rules refuses to pass: they
// stand here for those who cut what they write. They keep every event far below
// log.MaxEventBytes, even one that shows all old values beside the new ones.
const (
	MaxNameBytes = log.MaxNameBytes
	MaxTextBytes = log.MaxTextBytes
	MaxFieldJSON = 4 << 10  // bytes of one field that is JSON in text
	MaxTaskBytes = 64 << 10 // of a task's params, and of its result
	MinTagMTU    = 1500     // of a NIC tag, in bytes
)

// Overhead of VXLAN with a VLAN tag inside, in bytes: outer Ethernet is not
// counted by an MTU, inner Ethernet (14), VLAN (4), VXLAN (8), UDP (8) and outer
// IP (20 or 40) are (spec/kernel.md section 2: underlay - 54, IPv6 - 74).
const (
	Overhead4 = 54
	Overhead6 = 74
	VLANTag   = 4
)

// MaxVMsOfCN bounds the VMs of a compute node, unless a setting names another
// number: the fullest nodes run some thousand zones; eight times as many have no
// room in any machine of today, and are 8 MB of a server's memory.
const MaxVMsOfCN = 8192
