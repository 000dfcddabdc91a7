package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"rutter/cmd/rutter/netlab"
)

// pingWithin is how long the VMs of a form may take to reach each other, and pingAgain how
// long one ping is waited for.
const (
	pingWithin = 5 * time.Second
	pingAgain  = 200 * time.Millisecond
)

// warmUp is the beginning of each measurement, which does not count.
const warmUp = 50 * time.Millisecond

// stream sends bytes over one TCP connection from the first VM to the second, and returns
// bits a second of what arrived after warmUp.
func stream(f *form, each time.Duration) (rate float64, err error) {
	var from, to net.Conn
	var accept net.Listener
	err = f.vms[1].Do(func() (err error) {
		accept, err = net.Listen("tcp4", net.JoinHostPort(addresses[1].String(), "0"))
		return err
	})
	if err != nil {
		return 0, err
	}
	defer accept.Close()
	err = f.vms[0].Do(func() (err error) {
		from, err = net.DialTimeout("tcp4", accept.Addr().String(), pingWithin)
		return err
	})
	if err != nil {
		return 0, err
	}
	defer from.Close()
	if to, err = accept.Accept(); err != nil {
		return 0, err
	}
	defer to.Close()
	sent := make(chan error, 1)
	go func() {
		block := make([]byte, 256<<10)
		for {
			if _, err := from.Write(block); err != nil {
				sent <- nil // it ends when the receiver has closed
				return
			}
		}
	}()
	block, began, counted, bytes := make([]byte, 1<<20), time.Now(), time.Time{}, 0
	for {
		n, err := to.Read(block)
		now := time.Now()
		if err != nil {
			return 0, err
		}
		switch {
		case counted.IsZero() && now.Sub(began) >= warmUp:
			counted = now
		case !counted.IsZero():
			bytes += n
		}
		if !counted.IsZero() && now.Sub(counted) >= each {
			to.Close()
			from.Close()
			return float64(8*bytes) / now.Sub(counted).Seconds(), <-sent
		}
	}
}

// pingPong sends a datagram from the first VM to the second and back, again and again, and
// returns the round trips after warmUp, sorted.
func pingPong(f *form, each time.Duration) (trips []time.Duration, err error) {
	var fds [2]int
	for side, vm := range f.vms {
		if fds[side], err = datagrams(vm, side); err != nil {
			return nil, err
		}
		defer unix.Close(fds[side])
	}
	echoed := make(chan error, 1)
	go func() {
		defer alone(1)()
		b := make([]byte, 2048)
		for {
			n, from, err := unix.Recvfrom(fds[1], b, 0)
			if err == nil && n == 1 { // the end
				echoed <- nil
				return
			}
			if err == nil {
				err = unix.Sendto(fds[1], b[:n], 0, from)
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				echoed <- err
				return
			}
		}
	}()
	defer alone(0)()
	trips = make([]time.Duration, 0, 1<<18)
	to := &unix.SockaddrInet4{Addr: addresses[1].As4(), Port: echoPort}
	b := make([]byte, 64)
	for began := time.Now(); ; {
		at := time.Now()
		if at.Sub(began) >= warmUp+each {
			break
		}
		if err := unix.Sendto(fds[0], b, 0, to); err != nil {
			return nil, err
		}
		_, _, err := unix.Recvfrom(fds[0], b, 0)
		for errors.Is(err, unix.EINTR) {
			_, _, err = unix.Recvfrom(fds[0], b, 0)
		}
		if err != nil {
			return nil, fmt.Errorf("an echo did not come: %w", err)
		}
		if at.Sub(began) >= warmUp {
			trips = append(trips, time.Since(at))
		}
	}
	if err := unix.Sendto(fds[0], b[:1], 0, to); err != nil {
		return nil, err
	}
	slices.Sort(trips)
	return trips, <-echoed
}

const echoPort = 7007

// alone gives the calling goroutine a thread that other work of the machine delays as
// little as the kernel allows, on a processor of its own if there are several. It returns what ends that.
func alone(n int) (end func()) {
	runtime.LockOSThread()
	var was, cpu unix.CPUSet
	if unix.SchedGetaffinity(0, &was) == nil && was.Count() > n {
		for at, seen := 0, 0; seen <= n; at++ {
			if was.IsSet(at) {
				if seen == n {
					cpu.Set(at)
				}
				seen++
			}
		}
		_ = unix.SchedSetaffinity(0, &cpu) // what it may not have it does without
	}
	thread := unix.Gettid()
	real := unix.SchedSetAttr(thread, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0) == nil
	return func() {
		if real {
			_ = unix.SchedSetAttr(thread, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
		}
		_ = unix.SchedSetaffinity(0, &was)
		runtime.UnlockOSThread()
	}
}

// datagrams opens a UDP socket in a side's VM, on echoPort.
func datagrams(vm netlab.Namespace, side int) (fd int, err error) {
	err = vm.Do(func() error {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		wait := unix.NsecToTimeval(int64(pingWithin))
		return errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: addresses[side].As4(), Port: echoPort}), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait))
	})
	return fd, err
}

// ratios are, for each round, what one form has of another.
func ratios(of, to []float64) float64 {
	list := make([]float64, len(of))
	for i := range of {
		list[i] = of[i] / to[i]
	}
	return median(list)
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// inTurn measures each form once in each round, in turn, and returns what they have by name,
// one value a round.
func (s *suite) inTurn(ctx context.Context, measure func(f *form) (float64, error)) (found map[string][]float64, err error) {
	forms, err := newForms(ctx, s.dir)
	defer func() { err = errors.Join(err, closeForms(forms)) }()
	if err != nil {
		return nil, err
	}
	found = map[string][]float64{}
	for round := range s.rounds {
		for i := range forms {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			f := forms[(round+i)%len(forms)]
			value, err := measure(f)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
			found[f.name] = append(found[f.name], value)
		}
	}
	return found, nil
}

func (s *suite) throughput(ctx context.Context) error {
	found, err := s.inTurn(ctx, func(f *form) (float64, error) { return stream(f, s.each) })
	if err != nil {
		return err
	}
	for _, m := range makers {
		fmt.Printf("throughput, %s: median %.2f Gbit/s of %d rounds, %.3f of bridge\n", m.name, median(found[m.name])/1e9, s.rounds, ratios(found[m.name], found["bridge"]))
	}
	s.Set("wire_tput_ratio", ratios(found["ours"], found["bridge"]))
	s.Set("wire_tput_vs_device", ratios(found["ours"], found["device"]))
	return nil
}

func (s *suite) roundTrips(ctx context.Context) error {
	halves := map[string][]float64{}
	found, err := s.inTurn(ctx, func(f *form) (float64, error) {
		trips, err := pingPong(f, s.each)
		if err != nil {
			return 0, err
		}
		halves[f.name] = append(halves[f.name], float64(trips[len(trips)/2].Nanoseconds()))
		return float64(trips[len(trips)*99/100].Nanoseconds()), nil
	})
	if err != nil {
		return err
	}
	for _, m := range makers {
		fmt.Printf("round trip, %s: p50 %.1f µs, p99 %.1f µs, medians of %d rounds, %.3f and %.3f of bridge\n", m.name, median(halves[m.name])/1e3, median(found[m.name])/1e3, s.rounds, ratios(halves["bridge"], halves[m.name]), ratios(found["bridge"], found[m.name]))
	}
	s.Set("wire_rtt_ratio", ratios(found["bridge"], found["ours"]))
	s.Set("wire_rtt_vs_device", ratios(found["device"], found["ours"]))
	return nil
}
