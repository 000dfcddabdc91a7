package rig

import (
	"net"
	"strconv"
	"testing"

	"rutter/cmd/rutter/bench"
)

// Ports returns n ports of loopback that no program listens on, and that no other
// caller of Ports gets.
func Ports(t testing.TB, n int) []int {
	t.Helper()
	ports, err := bench.FreePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// Address is one of Ports, on 127.0.0.1.
func Address(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(Ports(t, 1)[0]))
}
