package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"rutter/varp"
)

// target is something that answers requests of one length by answers of one
// length, in order.
type target struct {
	name     string
	addr     string
	requests []byte // one behind the other
	request  int    // length of one
	answer   int    // length of an answer
}

// requestsHeld is how many different requests a target has: far more than
// caches of the processor hold the rows of.
const requestsHeld = 1 << 17

// drawn yields which mappings are asked for, the same for each target.
func drawn(mappings int, each func(i int)) {
	dice := rand.New(rand.NewPCG(1, 1))
	for range requestsHeld {
		each(dice.IntN(mappings))
	}
}

func svpTarget(name, addr string, mappings int) target {
	t := target{name: name, addr: addr, answer: varp.HeaderSize + 28}
	drawn(mappings, func(i int) {
		vnet, _, ip := mapping(i)
		t.requests = varp.VL3Req{IP: ip, Type: varp.L3TypeIPv4, VNet: vnet}.Append(t.requests, uint32(i))
	})
	t.request = len(t.requests) / requestsHeld
	return t
}

// echoTarget sends what an SVP client sends and gets it back.
func echoTarget(addr string, like target) target {
	like.name, like.addr, like.answer = "echo", addr, like.request
	return like
}

// redisValue has the length of a VL3_ACK's body, and redisKey one length for
// each mapping.
const redisValue = "0123456789012345678901234567"

func redisKey(i int) string {
	vnet, _, ip := mapping(i)
	return fmt.Sprintf("%08d,%15s", vnet, ip)
}

func redisTarget(addr string, mappings int) target {
	t := target{name: "redis", addr: addr, answer: len("$28\r\n" + redisValue + "\r\n")}
	drawn(mappings, func(i int) {
		key := redisKey(i)
		t.requests = fmt.Appendf(t.requests, "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(key), key)
	})
	t.request = len(t.requests) / requestsHeld
	return t
}

// result is what a measurement gave.
type result struct {
	perSecond float64
	p50, p99  time.Duration // of a batch, from its write to its last answer
}

// measure asks over so many connections, each with so many requests under way,
// for about d.
func (t target) measure(conns, pipelined int, d time.Duration) (result, error) {
	var running sync.WaitGroup
	times := make([][]time.Duration, conns)
	errs := make([]error, conns)
	opened := make([]net.Conn, conns)
	for i := range opened {
		nc, err := net.Dial("tcp", t.addr)
		if err != nil {
			return result{}, err
		}
		defer nc.Close()
		opened[i] = nc
	}
	began := time.Now()
	for i, nc := range opened {
		running.Go(func() {
			times[i], errs[i] = t.ask(nc, pipelined, i*requestsHeld/conns, began.Add(d))
		})
	}
	running.Wait()
	took := time.Since(began)
	all := slices.Concat(times...)
	if err := errors.Join(errs...); err != nil {
		return result{}, fmt.Errorf("%s: %w", t.name, err)
	}
	slices.Sort(all)
	return result{
		perSecond: float64(len(all)*pipelined) / took.Seconds(),
		p50:       all[len(all)/2],
		p99:       all[len(all)*99/100],
	}, nil
}

// ask writes pipelined requests at once and reads as many answers, over and
// over, and returns how long each time took.
func (t target) ask(nc net.Conn, pipelined, at int, until time.Time) ([]time.Duration, error) {
	times := make([]time.Duration, 0, 1<<16)
	in := make([]byte, pipelined*t.answer)
	at -= at % pipelined
	for {
		began := time.Now()
		if began.After(until) {
			return times, nil
		}
		if at+pipelined > requestsHeld {
			at = 0
		}
		if _, err := nc.Write(t.requests[at*t.request : (at+pipelined)*t.request]); err != nil {
			return times, err
		}
		if _, err := io.ReadFull(nc, in); err != nil {
			return times, err
		}
		at += pipelined
		times = append(times, time.Since(began))
	}
}

// check sees that each of a few answers is one that found what was asked for.
func (t target) check(good func(answer []byte) bool) error {
	nc, err := net.Dial("tcp", t.addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	in := make([]byte, t.answer)
	for i := range 1000 {
		if _, err := nc.Write(t.requests[i*t.request : (i+1)*t.request]); err != nil {
			return err
		}
		if _, err := io.ReadFull(nc, in); err != nil {
			return err
		}
		if !good(in) {
			return fmt.Errorf("%s: request %q was answered by %q", t.name, t.requests[i*t.request:(i+1)*t.request], in)
		}
	}
	return nil
}
