package world

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/auth/pki"
	"rutter/api/auth/tlsgate"
	"rutter/integration/simulate/coverage"
	"rutter/integration/simulate/history"
	"rutter/integration/simulate/seen"
)

// damage is what may become of a file of a folder of certificates.
type damage struct {
	file string
	do   func(c *certificates, name, path string) error
}

// damages are those of each folder; servers have serverDamages as well.
var damages = []damage{
	{tlsgate.CertFile, torn},
	{tlsgate.CertFile, emptied},
	{tlsgate.CAFile, emptied},
	{tlsgate.KeyFile, gone},
	{tlsgate.KeyFile, torn},
	{tlsgate.CAFile, torn},
	{tlsgate.CertFile, stale},
	{tlsgate.KeyFile + ".next", garbage},
}

var serverDamages = []damage{
	{tlsgate.PeerCertFile, torn},
	{tlsgate.PeerCAFile, emptied},
	{tlsgate.CAKeyFile, torn},
	{tlsgate.PeerCAKeyFile, gone},
}

func torn(_ *certificates, _, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()/2)
}

func emptied(_ *certificates, _, path string) error { return os.Truncate(path, 0) }

func gone(_ *certificates, _, path string) error { return os.Remove(path) }

func garbage(_ *certificates, _, path string) error {
	return os.WriteFile(path, []byte("-----BEGIN PRIVATE KEY-----"), 0o600)
}

// stale puts back the certificate and key of the beginning. What was revoked since then stays so, and
// is no damage: then the certificate is torn.
func stale(c *certificates, name, path string) error {
	if slices.ContainsFunc(c.w.h.Faults, func(f history.Fault) bool { return f.Kind == history.Revoke && f.On == name }) {
		return torn(c, name, path)
	}
	for _, file := range []string{tlsgate.CertFile, tlsgate.KeyFile} {
		text, err := os.ReadFile(filepath.Join(c.old, name, file))
		if errors.Is(err, fs.ErrNotExist) { // it is a later server on the machine
			return torn(c, name, path)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(filepath.Dir(path), file), text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keepOld copies the certificates with which the machines began.
func (c *certificates) keepOld() error {
	if c == nil {
		return nil
	}
	c.old = filepath.Join(c.w.folder, "tls-old")
	var err error
	for _, s := range c.w.servers {
		err = errors.Join(err, os.CopyFS(filepath.Join(c.old, s.name), os.DirFS(c.folder(s.member()))))
	}
	for _, n := range c.w.nodes {
		err = errors.Join(err, os.CopyFS(filepath.Join(c.old, n.name), os.DirFS(c.folder(n.name))))
	}
	return err
}

// holder is who has the certificates of a machine now.
func (c *certificates) holder(m machine) (folder string, id matrix.Identity) {
	switch m := m.(type) {
	case *server:
		id = matrix.Identity{Role: matrix.Server, Name: m.member()}
		return c.folder(id.Name), id
	case *node:
		return c.folder(m.name), m.identity()
	}
	return "", id
}

// spoil damages a file of a machine's folder of certificates. Its program goes on with what it has in
// memory, and puts most right with its next renewal; what cannot be used after a while, or when it
// starts, an operator issues anew.
func (c *certificates) spoil(m machine, f history.Fault) error {
	folder, id := c.holder(m)
	list := damages
	if id.Role == matrix.Server {
		list = slices.Concat(damages, serverDamages)
	}
	d := list[int(f.N-1)%len(list)]
	if err := d.do(c, f.On, filepath.Join(folder, d.file)); err != nil {
		return errors.Join(errBusy, err)
	}
	c.w.count(coverage.FolderSpoiled, 1)
	before := c.unusable(folder, id)
	time.Sleep(f.For)
	now, id := c.holder(m)
	switch err := c.unusable(now, id); {
	case now != folder: // another server has the machine
		return nil
	case err == nil:
		if before != nil {
			c.w.count(coverage.FolderHealed, 1)
		}
		return nil
	}
	return c.mend(m)
}

// unusable says why a program would not begin with a folder, or could not renew.
func (c *certificates) unusable(folder string, id matrix.Identity) error {
	_, err := tlsgate.New(tlsgate.Config{Paths: tlsgate.ClientPaths(folder), Name: pki.Clients, Ended: true})
	if id.Role == matrix.Server {
		_, peers := tlsgate.New(tlsgate.Config{Paths: tlsgate.PeerPaths(folder), Name: pki.Peers, Ended: true})
		_, key := tlsgate.ReadKeys(filepath.Join(folder, tlsgate.CAKeyFile), "")
		_, peerKey := tlsgate.ReadKeys(filepath.Join(folder, tlsgate.PeerCAKeyFile), "")
		err = errors.Join(err, peers, key, peerKey)
	}
	return err
}

// mendAsk is how long an operator asks for the newest revocation before certificates are issued
// without it.
const mendAsk = 5 * time.Second

// mend issues certificates into a folder that is damaged, as docs/security.md says, and records them
// when that can be done.
func (c *certificates) mend(m machine) error {
	folder, id := c.holder(m)
	if c.unusable(folder, id) == nil {
		return nil
	}
	name := filepath.Base(folder)[len("tls-"):]
	after, err := c.after(id, mendAsk)
	if err != nil {
		after = pki.After{}
	}
	if err := c.issueAfter(name, id, c.life, after); err != nil {
		return err
	}
	c.w.count(coverage.FolderMended, 1)
	c.w.zombies.Go(func() {
		if err := c.record(name, id); err != nil && c.w.ctx.Err() == nil {
			c.w.seen.Add("operator", seen.Fault{Err: "record " + name + ": " + err.Error()})
		}
	})
	return nil
}
