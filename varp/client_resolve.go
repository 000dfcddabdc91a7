package varp

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"
)

// maxAddresses bounds how many addresses of one name are tried for one request.
const maxAddresses = 8

// addressesOf returns the addresses at which p is dialled, as host:port, those of a
// name in the order of attempts: after a failure the next one comes first, so that a
// dead one does not delay each request.
func (c *Client) addressesOf(ctx context.Context, p *peer) ([]string, error) {
	host, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return []string{p.addr}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout)
	defer cancel()
	ips, err := c.cfg.Resolve(bounded, host)
	if err != nil {
		return nil, err
	}
	if len(ips) == 0 {
		return nil, &net.DNSError{Err: "no addresses", Name: host, IsNotFound: true}
	}
	c.mu.Lock()
	first := p.failures % len(ips)
	p.resolved = time.Now()
	c.mu.Unlock()
	ips = slices.Concat(ips[first:], ips[:first])
	addrs := make([]string, 0, min(len(ips), maxAddresses))
	for _, ip := range ips[:min(len(ips), maxAddresses)] {
		addrs = append(addrs, net.JoinHostPort(ip.Unmap().String(), port))
	}
	return addrs, nil
}

// dialAny connects to the first of p's addresses that answers, each within
// AttemptTimeout, and returns that address.
func (c *Client) dialAny(ctx context.Context, p *peer) (nc net.Conn, at string, err error) {
	addrs, err := c.addressesOf(ctx, p)
	for _, addr := range addrs {
		bounded, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout)
		nc, err = c.cfg.Dial(bounded, "tcp", addr)
		cancel()
		if err == nil || ctx.Err() != nil {
			return nc, addr, err
		}
	}
	return nil, "", err
}

// resolveAgainLocked starts a new look-up of a name if the last was long ago, while
// requests continue.
func (c *Client) resolveAgainLocked(p *peer) {
	if p.at == p.addr || p.resolving || time.Since(p.resolved) < c.cfg.ResolveEvery {
		return
	}
	p.resolving = true
	conn, at := p.conn, p.at
	c.running.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		c.running.Go(func() {
			select {
			case <-c.done:
				cancel()
			case <-ctx.Done():
			}
		})
		addrs, err := c.addressesOf(ctx, p)
		c.mu.Lock()
		defer c.mu.Unlock()
		p.resolving, p.resolved = false, time.Now()
		if err != nil || slices.Contains(addrs, at) || p.conn != conn {
			return // a failed look-up is no reason to leave
		}
		c.cfg.Logger.Info("SVP: a server's address is no longer that of its name", "name", p.addr, "address", at)
		p.conn = nil
		conn.retire()
	})
}
