package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
)

// Ports are taken from below the range from which Linux takes those of outgoing
// connections (net.ipv4.ip_local_port_range), so that no client gets one meanwhile.
const firstPort, endPort = 20000, 32000

// taken are the ports that this process has been given. Each is kept by a socket of
// that name, which the kernel closes with the process: tests that run at the same
// time, of one process or of several, get different ports.
var taken struct {
	sync.Mutex
	names []net.Listener
}

// FreePorts returns n ports of loopback without a listener. They are this
// process's as long as it runs.
func FreePorts(n int) ([]int, error) {
	taken.Lock()
	defer taken.Unlock()
	var ports []int
	for tries := 0; len(ports) < n; tries++ {
		if tries > 10*(endPort-firstPort) {
			return nil, errors.New("no port of loopback is free")
		}
		port := firstPort + rand.IntN(endPort-firstPort)
		name, err := net.Listen("unix", fmt.Sprintf("@rutter-port-%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, err
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if errors.Is(err, syscall.EADDRINUSE) {
			name.Close()
			continue
		}
		if err != nil {
			return nil, errors.Join(err, name.Close())
		}
		l.Close()
		taken.names = append(taken.names, name)
		ports = append(ports, port)
	}
	return ports, nil
}
