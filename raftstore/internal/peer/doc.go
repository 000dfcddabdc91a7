// Package peer is how the servers of a cluster reach each other: the peer port, the
// greeting of raft's connections, requests and answers in frames over one connection to
// each peer, and raft's transport. What requests mean is for the store.
//
// What it does about hashicorp/raft stands in packages of its own, each with its
// upstream, the test that fails without it, and the condition under which it can go:
//
//	heartbeat  a heartbeat changes no term beside raft's main goroutine
//	pipelines  a refused pipeline ends; commits are told at once, and nothing twice
//	votes      votes are asked for over connections that live
//	orphan     followers of a leader whose process ended stand for election at once
//
// TLS is below: PortOptions has a listener and a dialler that may have it.
//
// docs/upstream.md has all of them.
package peer
