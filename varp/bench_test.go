package varp

import (
	"fmt"
	"io"
	"net"
	"testing"
)

// BenchmarkAnswer is a lookup without a socket: split, look up, encode.
func BenchmarkAnswer(b *testing.B) {
	c := loopConn(b, Config{Lookup: vectorFixture()})
	request := appendLookup(nil, 1)
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		m, _, err := Split(request, MaxBody)
		if err != nil {
			b.Fatal(err)
		}
		if out, err = c.answer(out[:0], m); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkServer is VL3 over loopback TCP from one connection with a number of
// requests in flight; ns/op is for each lookup, including the client's part.
func BenchmarkServer(b *testing.B) {
	for _, pipelined := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("pipelined=%d", pipelined), func(b *testing.B) {
			_, addr := startServer(b, Config{Lookup: vectorFixture()})
			var requests []byte
			for range pipelined {
				requests = appendLookup(requests, 1)
			}
			exchange(b, addr, requests, pipelined*(HeaderSize+vl3AckSize), pipelined)
		})
	}
}

// BenchmarkEcho is the cost of the loopback: an echo of as many bytes as a VL3 request
// has, one at a time.
func BenchmarkEcho(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		for buf := make([]byte, 4096); ; {
			n, err := nc.Read(buf)
			if err != nil {
				return
			}
			if _, err := nc.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	request := appendLookup(nil, 1)
	exchange(b, ln.Addr().String(), request, len(request), 1)
	_ = ln.Close()
	<-ended
}

// exchange sends requests and reads a number of bytes of answer, repeatedly.
func exchange(b *testing.B, addr string, requests []byte, answer, perRound int) {
	b.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	in := make([]byte, answer)
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += perRound {
		if _, err := nc.Write(requests); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(nc, in); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
}
