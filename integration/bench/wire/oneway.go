package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// oneWayBatch is how many datagrams are timed together.
const oneWayBatch = 50

// oneWay sends datagrams from the first VM to the second, which takes none, and returns the
// time of one, sorted. The kernel brings a datagram to its end while its sender waits, so
// this is the work of the whole way, and other work of the machine shows in the higher ones
// only.
func oneWay(f *form, each time.Duration) (times []time.Duration, err error) {
	var fds [2]int
	for side, vm := range f.vms {
		if fds[side], err = datagrams(vm, side); err != nil {
			return nil, err
		}
		defer unix.Close(fds[side])
	}
	defer alone(0)()
	to := &unix.SockaddrInet4{Addr: addresses[1].As4(), Port: echoPort}
	b := make([]byte, 64)
	for began := time.Now(); len(times) == 0 || time.Since(began) < each; {
		at := time.Now()
		for range oneWayBatch {
			if err := unix.Sendto(fds[0], b, 0, to); err != nil {
				return nil, err
			}
		}
		times = append(times, time.Since(at)/oneWayBatch)
	}
	slices.Sort(times)
	return times, nil
}

// oneWays prints what a packet costs on its way.
func (s *suite) oneWays(ctx context.Context) error {
	found, err := s.inTurn(ctx, func(f *form) (float64, error) {
		times, err := oneWay(f, s.each)
		if err != nil {
			return 0, err
		}
		return float64(times[len(times)/20].Nanoseconds()), nil
	})
	if err != nil {
		return err
	}
	for _, m := range makers {
		value := median(found[m.name])
		fmt.Printf("one way, %s: 5th percentile %.0f ns, median of %d rounds, %+.0f ns beside bridge\n", m.name, value, s.rounds, value-median(found["bridge"]))
	}
	return nil
}
