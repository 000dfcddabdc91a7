// Package netlab builds small networks on one machine, for the demo and the
// tests: named network namespaces, bridges and veth pairs between them, and
// pings from inside. It needs CAP_SYS_ADMIN and CAP_NET_ADMIN, which a user
// namespace of one's own gives (Enter).
//
// It owns nothing that lives longer than its caller: namespaces are bind mounts
// in a folder that the caller removes. What an agent programs is left to
// package agent/link.
package netlab
