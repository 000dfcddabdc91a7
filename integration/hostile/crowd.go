package hostile

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/log"
	"rutter/log/intake"
)

// Bounds of what they do.
const (
	each    = 4 // of each sort at once
	pause   = 5 * time.Millisecond
	patient = 2 * time.Second // of one who waits for the server
	large   = 1 << 20
)

// mad is the compute node whose certificate they have.
var mad = log.UUID{0: 0xba, 6: 0x40, 8: 0x80, 15: 1}

// Crowd is the clients.
type Crowd struct {
	Address string // HOST:PORT of a server
	Office  *bench.Authority

	node *tls.Certificate
	// Insults counts the connections, by sort.
	Insults [len(sorts)]atomic.Uint64
}

// sort is a way to misbehave on one connection.
type sort struct {
	name string
	// with the certificate of a compute node; without any if false; raw: no TLS.
	with, raw bool
	do        func(c net.Conn, address string)
}

var sorts = [...]sort{
	{name: "garbage below TLS", raw: true, do: garbage},
	{name: "silent below TLS", raw: true, do: wait},
	{name: "garbage in TLS", do: garbage},
	{name: "slow header", do: slowHeader},
	{name: "endless header", do: endlessHeader},
	{name: "slow body", with: true, do: slowBody},
	{name: "deep JSON", with: true, do: deepJSON},
	{name: "compressed bomb", with: true, do: bomb},
	{name: "frame of 4 GB", with: true, do: largeFrame},
	{name: "msgpack bomb", with: true, do: msgpackBomb},
	{name: "hello of rubbish", with: true, do: rubbishHello},
	{name: "large frames of a websocket", with: true, do: websocketFrames},
	{name: "requests without end", with: true, do: requests},
}

// Run misbehaves until ctx ends.
func (c *Crowd) Run(ctx context.Context) error {
	var err error
	if c.node, err = c.Office.Certificate(matrix.Identity{Role: matrix.CN, UUID: mad}); err != nil {
		return err
	}
	dial, err := c.Office.Dialer(matrix.Identity{Role: matrix.CN, UUID: mad})
	if err != nil {
		return err
	}
	api, err := client.New(client.Config{Servers: []string{"https://" + c.Address}, DialTLS: dial})
	if err != nil {
		return err
	}
	defer api.Close()
	var running sync.WaitGroup
	for i := range sorts {
		for range each {
			running.Go(func() {
				for ctx.Err() == nil {
					c.insult(ctx, i)
				}
			})
		}
	}
	running.Go(func() { flood(ctx, api) })
	running.Wait()
	return nil
}

func (c *Crowd) insult(ctx context.Context, i int) {
	defer func() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}()
	s := sorts[i]
	// Strangers have many addresses: one alone is told to stay away soon. A compute
	// node has a few.
	from := net.IPv4(127, 66, byte(i), byte(1+rand.N(250)))
	if s.with {
		from = net.IPv4(127, 67, 0, byte(1+rand.N(each)))
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: patient}
	raw, err := dialer.DialContext(ctx, "tcp", c.Address)
	if err != nil {
		return
	}
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	_ = raw.SetDeadline(time.Now().Add(patient))
	c.Insults[i].Add(1)
	if s.raw {
		s.do(raw, c.Address)
		return
	}
	config := &tls.Config{InsecureSkipVerify: true}
	if s.with {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.node, nil }
	}
	conn := tls.Client(raw, config)
	if conn.HandshakeContext(ctx) == nil {
		s.do(conn, c.Address)
	}
}

// flood sends changes that are refused, hundreds under way, as fast as they go.
func flood(ctx context.Context, api *client.Client) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream := api.NewStream()
	var running sync.WaitGroup
	running.Go(func() { _ = stream.Run(ctx) }) // it ends with ctx
	for range 256 {
		running.Go(func() {
			for ctx.Err() == nil {
				op := log.Op{Action: log.Create, Kind: log.KindNICTag, Set: []string{"name"}, Object: &log.NICTag{Name: "mad"}}
				_, _ = stream.Submit(ctx, &log.Change{ID: client.NewChangeID(), Ops: []log.Op{op}}) // it is refused
			}
		})
	}
	running.Wait()
}

func garbage(c net.Conn, _ string) {
	b := make([]byte, 4096)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	_, _ = c.Write(b)
	wait(c, "")
}

// wait says nothing more, and reads.
func wait(c net.Conn, _ string) { _, _ = io.Copy(io.Discard, io.LimitReader(c, large)) }

func slowHeader(c net.Conn, address string) {
	fmt.Fprintf(c, "GET /ping HTTP/1.1\r\nHost: %s\r\n", address)
	for range 20 {
		time.Sleep(patient / 20)
		if _, err := io.WriteString(c, "X: y\r\n"); err != nil {
			return
		}
	}
}

func endlessHeader(c net.Conn, address string) {
	fmt.Fprintf(c, "GET /ping HTTP/1.1\r\nHost: %s\r\nX: ", address)
	_, _ = c.Write(bytes.Repeat([]byte{'a'}, large))
	wait(c, "")
}

func post(c net.Conn, address string, more ...string) {
	fmt.Fprintf(c, "POST /changes HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n%s\r\n\r\n", address, strings.Join(more, "\r\n"))
}

func slowBody(c net.Conn, address string) {
	post(c, address, "Content-Length: 1000000")
	_, _ = io.WriteString(c, "{")
	wait(c, "")
}

func deepJSON(c net.Conn, address string) {
	post(c, address, "Transfer-Encoding: chunked")
	for range 4 {
		if _, err := fmt.Fprintf(c, "80000\r\n%s\r\n", strings.Repeat("[", 0x80000)); err != nil {
			return
		}
	}
	wait(c, "")
}

// bomb says that it is compressed: nothing here is ever taken apart.
func bomb(c net.Conn, address string) {
	post(c, address, "Content-Encoding: gzip", "Content-Length: 20")
	_, _ = io.WriteString(c, "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xed\xc1\x01\x0d\x00\x00\x00\xc2\xa0")
	wait(c, "")
}

func upgrade(c net.Conn, address, path, protocol string, more ...string) {
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s\r\n", path, address, protocol, strings.Join(append(more, ""), "\r\n"))
}

func largeFrame(c net.Conn, address string) {
	upgrade(c, address, intake.Path, intake.Protocol)
	b := append(binary.BigEndian.AppendUint32(nil, 0xffffffff), 64, 0, 0, 0, 0)
	_, _ = c.Write(append(b, make([]byte, large)...))
	wait(c, "")
}

func msgpackBomb(c net.Conn, address string) {
	upgrade(c, address, intake.Path, intake.Protocol)
	payload := append([]byte{1}, bytes.Repeat([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}, 10_000)...)
	b, err := intake.Append(nil, intake.TypeChange, payload)
	if err == nil {
		_, _ = c.Write(b)
	}
	wait(c, "")
}

func rubbishHello(c net.Conn, address string) {
	upgrade(c, address, "/feed", client.Upgrade)
	_, _ = c.Write(bytes.Repeat([]byte{0xff}, large))
	wait(c, "")
}

func websocketFrames(c net.Conn, address string) {
	upgrade(c, address, "/changefeeds", "websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Accept-Version: ~2")
	// A text frame of 2^40 bytes, as RFC 6455 section 5.2 has it.
	b := append([]byte{0x81, 0xff}, binary.BigEndian.AppendUint64(nil, 1<<40)...)
	_, _ = c.Write(append(b, make([]byte, large)...))
	wait(c, "")
}

// requests asks for what it may, without end and without reading the answers.
func requests(c net.Conn, address string) {
	text := strings.Repeat("GET /nics HTTP/1.1\r\nHost: "+address+"\r\n\r\n", 64)
	for {
		if _, err := io.WriteString(c, text); err != nil {
			return
		}
	}
}

// Told says what was done, for people.
func (c *Crowd) Told() string {
	var all []string
	for i := range sorts {
		all = append(all, fmt.Sprintf("%d %s", c.Insults[i].Load(), sorts[i].name))
	}
	return strings.Join(all, ", ")
}
