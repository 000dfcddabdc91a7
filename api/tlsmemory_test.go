package api_test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"rutter/api"
	"rutter/api/feedserver"
	"rutter/log/feed"
)

// Subscribers of the measurement of memory, which are a process of their own: what
// they hold must not count.
const (
	idleSubscribers = 1000
	subscriberEnv   = "RUTTER_TEST_SUBSCRIBE" // the address, if this program is the subscribers
	// mostIdleTLS bounds an idle subscriber over TLS, in bytes of heap and stack.
	mostIdleTLS = 40 << 10
)

// What an idle subscriber over TLS costs a server.
func TestIdleSubscriberOverTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds long: not in make quick")
	}
	if address := os.Getenv(subscriberEnv); address != "" {
		subscribeIdly(t, address)
		return
	}
	store := api.NewMemory()
	certificate := throwAwayCertificate(t)
	server := runOn(t, store, func(l net.Listener) net.Listener {
		return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}})
	})
	write(t, runOn(t, store, func(l net.Listener) net.Listener { return l }).url)
	before := inUse()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestIdleSubscriberOverTLS$")
	cmd.Env = append(os.Environ(), subscriberEnv+"="+strings.TrimPrefix(server.url, "http://"))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || said != "ready\n" {
		t.Errorf("the subscribers said %q: %v", said, err)
	}
	each := (inUse() - before) / idleSubscribers
	_ = stdin.Close() // ends them
	if err := cmd.Wait(); err != nil {
		t.Errorf("the subscribers: %v", err)
	}
	t.Logf("%d idle subscribers over TLS: %d bytes of heap and stack each", idleSubscribers, each)
	if each > mostIdleTLS || each < 1<<10 {
		t.Errorf("%d bytes each, want at most %d, and what a connection takes at least", each, mostIdleTLS)
	}
}

// inUse is the memory that spans of the heap and stacks hold after a collection.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // what the first one only put aside, as pools do
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// subscribeIdly is the other process: it holds connections that have had a
// bookmark until its input ends.
func subscribeIdly(t *testing.T, address string) {
	for i := range idleSubscribers {
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true}) // the certificate is made for this test
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := untilBookmark(conn, i); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// untilBookmark says hello and reads until the first bookmark.
func untilBookmark(conn net.Conn, i int) error {
	hello, err := feed.Append(nil, &feed.Hello{CN: crowdCN(i), Incarnation: 1, Session: 1})
	if err != nil {
		return err
	}
	request := "GET /feed HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: " + feedserver.Protocol + "\r\n\r\n"
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := conn.Write(append([]byte(request), hello...)); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	for line := "begin"; line != "\r\n"; {
		if line, err = r.ReadString('\n'); err != nil {
			return err
		}
	}
	frames := feed.NewReader(r)
	for {
		f, err := frames.Next()
		if err != nil {
			return err
		}
		m, err := feed.Decode(f)
		if err != nil && !errors.Is(err, feed.ErrUnknownType) {
			return err
		}
		if _, ok := m.(*feed.Bookmark); ok {
			return nil
		}
	}
}

func throwAwayCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
