package world

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rutter/agent"
	"rutter/api/auth/enrol"
	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/api/client"
	"rutter/cmd/rutter/pkiclient"
	"rutter/cmd/rutter/trust"
	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/history"
	"rutter/integration/simulate/network"
	"rutter/integration/simulate/seen"
	"rutter/log"
)

// dialer makes connections, as network.Host.Dial.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// certificates are those of a world with TLS; nil: it has none. Each server and node has a folder
// of its own, which outlives its processes; all clients are one operator.
type certificates struct {
	w      *world
	office tlsgate.Issuer
	life   time.Duration // of servers' and nodes' certificates
	keeper *tlsgate.Keeper
	old    string      // the folder with the certificates of the beginning
	out    atomic.Bool // a server's certificates are revoked, and it has no others yet
}

// lives of certificates: the short ones are renewed, and end, within a history.
var lives = []time.Duration{20 * time.Second, 40 * time.Second, 10 * time.Minute}

// openCertificates makes the authorities and the operator's certificate.
func openCertificates(w *world) (err error) {
	if !w.h.TLS {
		return nil
	}
	c := &certificates{w: w, office: tlsgate.Issuer{Folder: filepath.Join(w.folder, "pki")}, life: lives[w.rand("certificates").IntN(len(lives))]}
	if err := c.office.Init(pki.AuthorityLife); err != nil {
		return err
	}
	if err := c.issue("operator", matrix.Identity{Role: matrix.Operator, Name: "ada"}, pki.Life); err != nil {
		return err
	}
	if c.keeper, err = tlsgate.New(tlsgate.Config{Paths: tlsgate.ClientPaths(c.folder("operator")), Name: pki.Clients}); err != nil {
		return err
	}
	for _, n := range w.nodes {
		if err := c.issue(n.name, n.identity(), c.life); err != nil {
			return err
		}
	}
	w.certificates = c
	return nil
}

func (n *node) identity() matrix.Identity { return matrix.Identity{Role: matrix.CN, UUID: n.cn} }

// folder is where the certificates of a server, node or operator are.
func (c *certificates) folder(name string) string { return filepath.Join(c.w.folder, "tls-"+name) }

func (c *certificates) issue(name string, id matrix.Identity, life time.Duration) error {
	return c.issueAfter(name, id, life, pki.After{})
}

// issueAfter issues certificates after a revocation, as rutter cert issue -s.
func (c *certificates) issueAfter(name string, id matrix.Identity, life time.Duration, after pki.After) error {
	_, err := c.office.Issue(c.folder(name), tlsgate.Grant{Identity: id, Life: life, WithKeys: true, After: after})
	return err
}

// after is the newest revocation of an identity, asked until a server says it, or for so long.
func (c *certificates) after(id matrix.Identity, within time.Duration) (after pki.After, err error) {
	for begun := time.Now(); ; pause(c.w.ctx, time.Second) {
		err = c.ask(func(ctx context.Context, api *pkiclient.Client) (err error) {
			after, err = api.After(ctx, pki.Subject(id))
			return err
		})
		if err == nil || c.w.ctx.Err() != nil || time.Since(begun) > within {
			return after, err
		}
	}
}

// ofServer returns the folder of a server, which gets its certificates when it first starts.
func (c *certificates) ofServer(id string) (folder string, err error) {
	folder = c.folder(id)
	if !tlsgate.ClientPaths(folder).Exists() {
		err = c.issue(id, matrix.Identity{Role: matrix.Server, Name: id}, c.life)
	}
	return folder, err
}

// operator is whom all clients are; nil without TLS.
func (c *certificates) operator() *tlsgate.Keeper {
	if c == nil {
		return nil
	}
	return c.keeper
}

// toServers makes connections to servers with the certificate of k; nil: there is none.
func toServers(k *tlsgate.Keeper, dial dialer) dialer {
	if k == nil {
		return nil
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return k.DialWith(ctx, dial, network, address, tlsgate.Role(matrix.Server))
	}
}

// hostDialer gives up after 3 s, as a client's own dialler does.
func hostDialer(h *network.Host) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		return h.Dial(ctx, network, address)
	}
}

// keeperOf opens the certificate of a node; nil without TLS.
func (n *node) keeperOf() (*tlsgate.Keeper, error) {
	c := n.w.certificates
	if c == nil {
		return nil, nil
	}
	return tlsgate.New(tlsgate.Config{Paths: tlsgate.ClientPaths(c.folder(n.name)), Name: pki.Clients, Logger: n.w.logger(n.name), Now: n.clock.now, Ended: true})
}

// keep renews a node's certificate, and follows the log's authorities and revocations, as
// package cmd/rutter/node does, until ctx ends.
func (n *node) keep(ctx context.Context, k *tlsgate.Keeper, a *agent.Agent) {
	if k == nil {
		return
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return k.DialRenewalWith(ctx, hostDialer(n.host), network, address, tlsgate.Role(matrix.Server))
	}
	api, err := client.New(client.Config{Servers: urls(n.w.servers, "", n.i), Timeout: 15 * time.Second, AttemptTimeout: 3 * time.Second, Silence: 20 * time.Second, Dial: hostDialer(n.host), DialTLS: dial, Jitter: n.w.jitter("renewals " + n.name)})
	if err != nil {
		n.w.fail("%s: %v", n.name, err)
		return
	}
	defer api.Close()
	ask := pkiclient.Renewal(api)
	renewer, err := tlsgate.NewRenewer(tlsgate.RenewConfig{
		Keeper: k, Jitter: share(n.w.jitter("share " + n.name)), Logger: n.w.logger(n.name),
		Ask: func(ctx context.Context, request []byte) (*x509.Certificate, error) {
			leaf, err := ask(ctx, request)
			if err == nil {
				n.w.count(coverage.CertificateNew, 1)
			}
			if k.Now().After(k.Leaf().NotAfter) {
				n.w.count("certificate ended", 1)
			}
			return leaf, err
		},
	})
	if err != nil {
		n.w.fail("%s: %v", n.name, err)
		return
	}
	follower := &trust.Follower{View: trust.OfAgent(a.Part), Keepers: map[string]*tlsgate.Keeper{pki.Clients: k}, Logger: n.w.logger(n.name)}
	var g sync.WaitGroup
	for _, run := range []func(context.Context) error{k.Run, follower.Run, renewer.Run} {
		g.Go(func() { _ = run(ctx) })
	}
	g.Wait()
}

// call is a request of the operator about certificates, sent until it is done.
func (c *certificates) call(method, path string, form any, within time.Duration) error {
	text, err := json.Marshal(form)
	if err != nil {
		return err
	}
	var body map[string]any
	if err := json.Unmarshal(text, &body); err != nil {
		return err
	}
	return c.w.ask(method, enrol.Path+path, body, within)
}

// record tells the cluster of the certificates in a folder, as rutter cert record.
func (c *certificates) record(name string, id matrix.Identity) error {
	sets := map[string]tlsgate.Paths{pki.Clients: tlsgate.ClientPaths(c.folder(name))}
	if id.Role == matrix.Server {
		sets[pki.Peers] = tlsgate.PeerPaths(c.folder(name))
	}
	for set, paths := range sets {
		own, err := tlsgate.ReadCertificates(paths.Cert)
		if err != nil {
			return err
		}
		authorities, err := tlsgate.ReadCertificates(paths.CA)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(authorities, func(a *x509.Certificate) bool { return own[0].CheckSignatureFrom(a) == nil })
		if i < 0 {
			return fmt.Errorf("the certificate of %s was signed by none that it trusts", name)
		}
		o := enrol.Recording(own[0], id, set, authorities[i]).Object.(*log.Certificate)
		if known, err := c.known(o.Serial); err != nil || known {
			return err
		}
		if err := c.call("POST", "/certificates", o, 30*time.Second); err != nil {
			return err
		}
	}
	return nil
}

// known reports whether the log has a certificate.
func (c *certificates) known(serial string) (known bool, err error) {
	err = c.ask(func(ctx context.Context, api *pkiclient.Client) error {
		list, err := api.Certificates(ctx)
		known = slices.ContainsFunc(list, func(one pkiclient.Certificate) bool { return one.Serial == serial })
		return err
	})
	return known, err
}

// ask asks once, as the operator.
func (c *certificates) ask(fn func(ctx context.Context, api *pkiclient.Client) error) error {
	api, err := c.w.client(c.w.net.Host("operator"), "", 0)
	if err != nil {
		return err
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(c.w.ctx, 15*time.Second)
	defer cancel()
	return fn(ctx, &pkiclient.Client{API: api})
}

// recordAll tells the cluster of what was issued by hand when it was founded, or what a restored
// backup does not know.
func (c *certificates) recordAll() error {
	if c == nil {
		return nil
	}
	err := c.record("operator", matrix.Identity{Role: matrix.Operator, Name: "ada"})
	for _, n := range c.w.nodes {
		err = errors.Join(err, c.record(n.name, n.identity()))
	}
	return err
}

// publish makes the cluster trust the authorities of the operator's folder.
func (c *certificates) publish(set string) ([]*pki.Authority, error) {
	list, err := c.office.Authorities(set)
	if err != nil {
		return nil, err
	}
	form := enrol.PublishForm{Issuing: pki.CertificateKeyID(list[0].Certificate)}
	for _, a := range list {
		form.Certificates = append(form.Certificates, pki.Base64(a.Certificate))
	}
	err = c.call("PUT", "/authorities/"+set, form, 20*time.Second)
	pause(c.w.ctx, time.Second) // servers look four times a second
	return list, err
}

// finishing is how long the operator tries to end a rotation.
const finishing = 30 * time.Second

// rotate replaces the authorities of a set as docs/security.md says. If a machine does not come
// to a certificate of the next one in time, both stay trusted, and the next rotation goes on.
func (c *certificates) rotate(f history.Fault) error {
	set := []string{pki.Clients, pki.Peers}[c.w.rand(fmt.Sprint("rotate", f.At)).IntN(2)]
	list, err := c.office.Authorities(set)
	if err == nil && len(list) == 1 {
		_, err = c.office.Add(set, pki.AuthorityLife)
	}
	if err != nil {
		return err
	}
	if list, err = c.publish(set); err != nil {
		return err
	}
	pause(c.w.ctx, 2*time.Second)
	if err := c.handOver(set, list); err != nil {
		return err
	}
	if err := c.office.Promote(set); err != nil {
		return err
	}
	if list, err = c.publish(set); err != nil {
		return err
	}
	if set == pki.Clients {
		ada := matrix.Identity{Role: matrix.Operator, Name: "ada"}
		if err := errors.Join(c.issue("operator", ada, pki.Life), c.keeper.Reload(), c.record("operator", ada)); err != nil {
			return err
		}
	}
	c.w.count("authority next", 1)
	return c.finish(set, list)
}

// finish takes the old authority of a set away, when no identity has a certificate of it.
func (c *certificates) finish(set string, list []*pki.Authority) error {
	for begun := time.Now(); ; c.leave(2 * time.Second) {
		if now, err := c.office.Authorities(set); err != nil || len(now) != 2 || !now[0].Certificate.Equal(list[0].Certificate) {
			return err // the next rotation went on
		}
		var old []string
		err := c.ask(func(ctx context.Context, api *pkiclient.Client) (err error) {
			old, err = api.Holders(ctx, set, pki.CertificateKeyID(list[0].Certificate))
			return err
		})
		if err == nil && len(old) == 0 {
			break
		}
		if time.Since(begun) > finishing {
			return fmt.Errorf("both authorities stay: %v, %w", old, errors.Join(err, errBusy))
		}
	}
	if err := c.office.Drop(set); err != nil {
		return err
	}
	_, err := c.publish(set)
	c.w.count("authority rotated", 1)
	return err
}

// leave is a pause in which the operator does other things: who waits for a certificate cannot
// renew it otherwise.
func (c *certificates) leave(d time.Duration) {
	<-c.w.operating
	pause(c.w.ctx, d)
	c.w.operating <- struct{}{}
}

// handOver gives the key of the next authority to servers, and the authority itself to those that
// were off when it was published.
func (c *certificates) handOver(set string, list []*pki.Authority) error {
	var trusted []*x509.Certificate
	for _, a := range list {
		trusted = append(trusted, a.Certificate)
	}
	tell := func(paths tlsgate.Paths) error {
		has, err := tlsgate.ReadCertificates(paths.CA)
		if err != nil || slices.ContainsFunc(has, func(one *x509.Certificate) bool { return one.Equal(trusted[len(trusted)-1]) }) {
			return err
		}
		return tlsgate.WriteCertificates(paths.CA, trusted...)
	}
	for _, s := range c.w.servers {
		folder, err := c.ofServer(s.member())
		if err == nil {
			paths := tlsgate.ClientPaths(folder)
			if set == pki.Peers {
				paths = tlsgate.PeerPaths(folder)
			}
			err = errors.Join(c.office.HandOver(set, folder), tell(paths))
		}
		if err != nil {
			return err
		}
	}
	if set == pki.Clients {
		for _, n := range c.w.nodes {
			if err := tell(tlsgate.ClientPaths(c.folder(n.name))); err != nil {
				return err
			}
		}
		return errors.Join(tell(tlsgate.ClientPaths(c.folder("operator"))), c.keeper.Reload())
	}
	return nil
}

// revoke takes away what the certificates of a machine grant, and gives it others later.
func (c *certificates) revoke(f history.Fault) error {
	w := c.w
	name, id := f.On, matrix.Identity{Role: matrix.Server}
	if s := w.server(f.On); s != nil {
		if !c.out.CompareAndSwap(false, true) {
			return errBusy // the log refuses that a second one is out
		}
		defer c.out.Store(false)
		name = s.member()
		id.Name = name
	} else if n := w.node(f.On); n != nil {
		id = n.identity()
	} else {
		return errBusy
	}
	one := func(fn func() error) error {
		w.operating <- struct{}{}
		defer func() { <-w.operating }()
		return fn()
	}
	err := one(func() error {
		return c.call("POST", "/revocations", enrol.RevokeForm{Revocation: log.Revocation{Subject: pki.Subject(id), Reason: "a mistake"}}, 10*time.Second)
	})
	if err != nil {
		w.count("revocation not done", 1) // it may have been done all the same
	}
	w.seen.Add(f.On, seen.Process{State: "revoked", Err: fmt.Sprint(err)})
	time.Sleep(f.For)
	pause(w.ctx, time.Second) // certificates have times in whole seconds
	return one(func() error {
		w.seen.Add(f.On, seen.Process{State: "certified"})
		after, err := c.after(id, finishing)
		if err == nil {
			err = c.issueAfter(name, id, c.life, after)
		}
		if err != nil {
			return err
		}
		w.count(coverage.CertificateNew, 1)
		return c.record(name, id)
	})
}

// afterRestore is what an operator does whose certificates changed since the backup.
func (c *certificates) afterRestore() error {
	if c == nil {
		return nil
	}
	for _, set := range []string{pki.Clients, pki.Peers} {
		if _, err := c.publish(set); err != nil {
			return err
		}
	}
	return c.recordAll()
}
