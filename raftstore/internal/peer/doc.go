// Package peer connects the servers of a cluster: the peer port, the greeting of raft's
// connections, requests and answers in frames over one connection to each peer, and
// raft's transport. The store defines the meaning of requests.
//
// Workarounds for hashicorp/raft are in packages of their own, each with the upstream
// issue, the test that fails without it, and the condition under which it can be removed:
//
//	heartbeat  a heartbeat changes no term beside raft's main goroutine
//	pipelines  a refused pipeline ends; commits are sent at once, and nothing twice
//	votes      votes are requested over live connections
//	orphan     followers of a leader whose process ended stand for election at once
//
// TLS is a layer below: the listener and the dialler in PortOptions may use it.
//
// docs/upstream.md has all of them.
package peer
