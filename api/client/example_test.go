package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"time"

	"rutter/api"
	"rutter/api/client"
	"rutter/api/internal/apitest"
	"rutter/log"
)

// memory is a store of one server, which keeps nothing.
type memory struct{ *apitest.Memory }

func (m memory) Status() api.Status { return api.Status{ID: "s1", State: "Leader", Leader: "s1"} }

// startServer is a server in this process, in place of those of a cluster, and a client
// of it.
func startServer() (c *client.Client, stop func()) {
	s, err := api.New(api.Config{Store: memory{apitest.NewMemory()}, Version: "example"})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(s.Handler())
	c, err = client.New(client.Config{Servers: []string{server.URL}})
	if err != nil {
		panic(err)
	}
	return c, func() {
		c.Close()
		server.Close()
	}
}

// A client names all servers of its cluster, and writes and reads objects in their JSON
// form, by the paths of the API.
func Example() {
	c, stop := startServer() // else client.New(client.Config{Servers: []string{"http://10.0.0.2:7420", …}})
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	if _, err := c.Create(ctx, "/nic_tags", []byte(`{"name":"external","mtu":1500}`)); err != nil {
		fmt.Println(err)
		return
	}
	tag, err := c.Update(ctx, "/nic_tags/external", []byte(`{"mtu":9000}`), "")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tag["name"], tag["mtu"])
	// Output: external 9000
}

// Several operations are one change: all are done, or none. The change's id is the
// caller's, so that it is done once however often it is submitted.
func ExampleClient_Submit() {
	c, stop := startServer()
	defer stop()
	ctx := context.Background()

	change := &log.Change{ID: client.NewChangeID(), Ops: []log.Op{
		{Action: log.Create, Kind: log.KindNICTag, Object: &log.NICTag{Name: "external"}, Set: []string{"name"}},
		{Action: log.Create, Kind: log.KindNICTag, Object: &log.NICTag{Name: "internal"}, Set: []string{"name"}},
	}}
	first, err := c.Submit(ctx, change)
	if err != nil {
		fmt.Println(err)
		return
	}
	again, err := c.Submit(ctx, change)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(first.First, first.Last, again.First, again.Last)
	// Output: 1 2 1 2
}

// What the servers refuse is a *log.Refusal: its code is for programs, its fields say
// what is wrong.
func ExampleClient_Create_refused() {
	c, stop := startServer()
	defer stop()

	_, err := c.Create(context.Background(), "/nic_tags", []byte(`{"name":"external","mtu":1}`))
	var refusal *log.Refusal
	if errors.As(err, &refusal) {
		fmt.Println(refusal.Code, refusal.Errors[0].Field)
	}
	// Output: InvalidParameters mtu
}

// Everything that happens is in the log. It is read from any seq on, filtered, once or
// with Follow for as long as its context lasts.
func ExampleClient_Log() {
	c, stop := startServer()
	defer stop()
	ctx := context.Background()
	for _, name := range []string{"external", "internal"} {
		if _, err := c.Create(ctx, "/nic_tags", fmt.Appendf(nil, `{"name":%q}`, name)); err != nil {
			fmt.Println(err)
			return
		}
	}

	for line, err := range c.Log(ctx, client.LogQuery{After: 0, Query: url.Values{"kind": {"nic_tag"}}}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(line.Seq, line.Event.Action, line.Event.Kind, line.Event.ID)
	}
	// Output:
	// 1 create nic_tag external
	// 2 create nic_tag internal
}

// Many changes at once go over one connection.
func ExampleClient_NewStream() {
	c, stop := startServer()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	stream, ended := c.NewStream(), make(chan error, 1)
	go func() { ended <- stream.Run(ctx) }()

	result, err := stream.Submit(ctx, &log.Change{ID: client.NewChangeID(), Ops: []log.Op{
		{Action: log.Create, Kind: log.KindNICTag, Object: &log.NICTag{Name: "external"}, Set: []string{"name"}},
	}})
	cancel()
	<-ended
	fmt.Println(result.IDs, err)
	// Output: [external] <nil>
}
