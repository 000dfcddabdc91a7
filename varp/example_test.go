package varp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"rutter/log"
	"rutter/varp"
)

// directory is a Lookup over one NIC: 90:b8:d0:00:00:01 has 10.0.0.1 on vnet 100,
// and is on the node at 192.0.2.7.
type directory struct{}

var (
	nicMAC = log.MAC{0x90, 0xb8, 0xd0, 0, 0, 1}
	nicIP  = netip.MustParseAddr("10.0.0.1")
	node   = varp.Underlay{Addr: netip.MustParseAddr("192.0.2.7"), Port: 4789}
)

func (directory) VL2(vnet uint32, mac log.MAC) (varp.Underlay, bool) {
	return node, vnet == 100 && mac == nicMAC
}

func (directory) VL3(vnet uint32, ip netip.Addr) (log.MAC, varp.Underlay, bool) {
	return nicMAC, node, vnet == 100 && ip == nicIP
}

// A server answers from a Lookup; a client asks it by MAC (VL2) and by address (VL3).
func Example() {
	server, err := varp.NewServer(varp.Config{Lookup: directory{}})
	if err != nil {
		fmt.Println(err)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, listener) }()

	client, err := varp.NewClient(varp.ClientConfig{Servers: []string{listener.Addr().String()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	at, err := client.VL2(ctx, 100, nicMAC)
	fmt.Println("VL2:", at.Addr, at.Port, err)
	mac, at, err := client.VL3(ctx, 100, nicIP)
	fmt.Println("VL3:", mac, at.Addr, at.Port, err)
	_, err = client.VL2(ctx, 101, nicMAC)
	fmt.Println("another vnet:", errors.Is(err, varp.ErrNotFound))

	_ = client.Close()
	stop()
	<-ended
	// Output:
	// VL2: 192.0.2.7 4789 <nil>
	// VL3: 90:b8:d0:00:00:01 192.0.2.7 4789 <nil>
	// another vnet: true
}

// The codec works without a connection: a request is appended to a buffer, and
// Split finds the messages in what was read.
func ExampleSplit() {
	request := varp.VL3Req{VNet: 100, Type: varp.L3TypeIPv4, IP: nicIP}
	message, size, err := varp.Split(request.Append(nil, 7), varp.MaxBody)
	fmt.Println(message.Op, message.ID, size, err)
	parsed, err := varp.ParseVL3Req(message.Body)
	fmt.Println(parsed.VNet, parsed.IP, err)
	// Output:
	// VL3_REQ 7 40 <nil>
	// 100 10.0.0.1 <nil>
}
