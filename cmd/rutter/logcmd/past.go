package logcmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"rutter/api/client"
	"rutter/cmd/rutter/logcmd/internal/names"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/projections"
	"rutter/raftstore/history"
)

// readAtOnce is the number of entries that are read from a folder at once.
const readAtOnce = 4096

// pastLog is a log whose past is read: a cluster, a stopped server's folder, a snapshot
// file or an export.
type pastLog struct {
	name   string
	folder *history.Folder // nil: the cluster
	temp   string          // folder of its own, removed at the end
	api    *client.Client
	floor  log.Seq
	head   log.Seq
}

// partFlags name a part of the state.
func partFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "cn", Usage: "only what the CN with this `UUID|NAME` must know"},
		&cli.StringFlag{Name: "vnet", Usage: "only what is on the vnet with this `NUMBER`, or of the fabric network with this name"},
	}
}

// openPast opens what --data or --server names.
func openPast(c *cli.Context) (*pastLog, error) {
	if path := c.String("data"); path != "" {
		return openNamed(c, path)
	}
	api, err := term.NewClient(c)
	if err != nil {
		return nil, err
	}
	return askCluster(c.Context, strings.Join(c.StringSlice("server"), ","), api)
}

// openNamed opens a folder, a snapshot file, an export or the cluster of a URL.
func openNamed(c *cli.Context, name string) (*pastLog, error) {
	if isURL(name) {
		api, err := term.OpenClient(term.ClientConfigOf(c, strings.Split(name, ",")))
		if err != nil {
			return nil, err
		}
		return askCluster(c.Context, name, api)
	}
	exported, err := openExport(name)
	if err == nil {
		s, err := unfold(c.Context, name, exported)
		return s, errors.Join(err, exported.Close())
	}
	if errors.Is(err, log.ErrCorrupt) {
		return nil, err
	}
	f, err := openFolder(name)
	if err != nil {
		return nil, err
	}
	return &pastLog{name: name, folder: f, floor: f.Floor(), head: f.Head().Seq}, nil
}

func isURL(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}

// offlineGC is GOGC, in percent, of a command that reads a folder. The process runs for
// seconds, and needs memory for one answer.
const offlineGC = 400

func openFolder(path string) (*history.Folder, error) {
	debug.SetGCPercent(offlineGC)
	folder, err := history.OpenFolder(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, cannotOpen(err)
	}
	return folder, err
}

// unfold makes a folder from an export, in which each seq can be read.
func unfold(ctx context.Context, name string, from *stored) (s *pastLog, err error) {
	if from.header.Floor > 0 {
		return nil, fmt.Errorf("%s begins behind seq %d, and has no state from before: make a folder of it with rutter log import --onto", name, from.header.Floor)
	}
	temp, err := os.MkdirTemp("", "rutter-export-")
	if err != nil {
		return nil, err
	}
	s = &pastLog{name: name, temp: temp}
	w, err := history.CreateFolder(temp, history.FolderStart{Cluster: from.header.Cluster})
	if err == nil {
		err = appendAll(w, from.entries(ctx, 0), 0)
		if err == nil {
			err = w.Close()
		}
	}
	if err == nil {
		s.folder, err = openFolder(temp)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.head = s.folder.Head().Seq
	return s, nil
}

func askCluster(ctx context.Context, name string, api *client.Client) (*pastLog, error) {
	status, err := api.Status(ctx)
	if err != nil {
		return nil, err
	}
	return &pastLog{name: name, api: api, floor: status.Floor, head: status.Head.Seq}, nil
}

func (s *pastLog) close() (err error) {
	if s.folder != nil {
		err = s.folder.Close()
	}
	if s.api != nil {
		s.api.Close()
	}
	if s.temp != "" {
		err = errors.Join(err, os.RemoveAll(s.temp))
	}
	return err
}

// makeLocal copies a cluster's log to a folder on this machine, by a snapshot. The
// folder has the state at the floor and all entries that are kept, as they are stored.
func (s *pastLog) makeLocal(ctx context.Context) (err error) {
	if s.folder != nil {
		return nil
	}
	if s.temp, err = os.MkdirTemp("", "rutter-past-"); err != nil {
		return err
	}
	name := filepath.Join(s.temp, "snapshot")
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = s.api.Snapshot(ctx, file, output.Percent("byte"))
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if s.folder, err = openFolder(name); err == nil {
		s.floor, s.head = s.folder.Floor(), s.folder.Head().Seq
	}
	return errors.Join(err, os.Remove(name)) // the unpacked files are open
}

// seqAt returns the seq that a text of package moment names. "" is the head. For a
// cluster, the servers look a time up.
func (s *pastLog) seqAt(ctx context.Context, text string) (log.Seq, error) {
	if text == "" {
		return s.head, nil
	}
	m, err := term.Moment(ctx, text)
	switch {
	case err != nil:
		return 0, err
	case m.IsSeq:
		return m.Seq, nil
	case s.folder != nil:
		return s.folder.SeqAt(m.Time)
	}
	answer, err := s.api.State(ctx, url.Values{"at": {m.String()}, "kind": {"nic_tag"}})
	if err != nil {
		return 0, err
	}
	return answer.Seq, nil
}

// checkNotBefore refuses a place before the first entry, because an empty output would
// look as if there were no objects.
func (s *pastLog) checkNotBefore(ctx context.Context, asked string, seq log.Seq) error {
	if asked == "" || seq > 0 {
		return nil
	}
	for e, err := range s.entries(ctx, 0) {
		if err != nil {
			return err
		}
		event, err := e.Event()
		if err != nil {
			return err
		}
		return fmt.Errorf("%s: nothing was there yet: the log of %s begins with seq %d of %s", asked, s.name, e.Seq, event.Time)
	}
	return fmt.Errorf("%s: nothing was there: the log of %s is empty", asked, s.name)
}

// statePart is the part of a state that a command needs. The zero value is all of it.
type statePart struct {
	cn   log.UUID
	vnet uint32
	kind log.Kind
	has  log.ScopeType // 0, ScopeCN or ScopeVNet
}

func partOf(c *cli.Context) (p statePart, err error) {
	if c.IsSet("cn") && c.IsSet("vnet") {
		return p, term.Usagef("--cn and --vnet exclude each other")
	}
	if text := c.String("cn"); text != "" {
		p.has = log.ScopeCN
		o, err := found(c, log.KindServer, text)
		if err != nil {
			return p, err
		}
		if p.cn, err = log.ParseUUID(o.ID); err != nil {
			return p, term.Usagef("--cn: %w", err)
		}
	}
	if text := c.String("vnet"); text != "" {
		p.has = log.ScopeVNet
		if p.vnet, err = vnetOf(c, text); err != nil {
			return p, term.Usagef("--vnet: %w", err)
		}
	}
	if text := c.String("kind"); text != "" {
		if p.kind, err = log.ParseKind(text); err != nil {
			return p, term.Usagef("--kind: %w", err)
		}
	}
	return p, nil
}

// scopes returns the scopes whose objects the part has. None means everything.
func (p statePart) scopes(state *projections.State) []log.Scope {
	switch p.has {
	case log.ScopeCN:
		return state.Interest(p.cn)
	case log.ScopeVNet:
		return []log.Scope{log.VNetScope(p.vnet)}
	}
	return nil
}

// records yields the objects of the part, sorted by kind and id.
func (p statePart) records(state *projections.State) iter.Seq[projections.Record] {
	scopes := p.scopes(state)
	in := func(scope log.Scope) bool {
		for _, s := range scopes {
			if s == scope {
				return true
			}
		}
		return false
	}
	return func(yield func(projections.Record) bool) {
		for kind := range log.Kind(255) {
			if p.kind != 0 && kind != p.kind {
				continue
			}
			for rec := range state.List(kind) {
				if (scopes == nil || state.InAny(rec.Object, in)) && !yield(rec) {
					return
				}
			}
		}
	}
}

// state returns the state at a seq, or at least the part.
func (s *pastLog) state(ctx context.Context, seq log.Seq, p statePart) (*projections.State, error) {
	if s.folder != nil {
		switch {
		case p.has == log.ScopeCN:
			return s.folder.PartAt(ctx, history.Part{CNs: []log.UUID{p.cn}}, seq)
		case p.has == log.ScopeVNet:
			return s.folder.PartAt(ctx, history.Part{VNets: []uint32{p.vnet}}, seq)
		case p.kind != 0 && p.kind != log.KindNIC && p.kind != log.KindVM && p.kind != log.KindVMM:
			return s.folder.PartAt(ctx, history.Part{Kinds: []log.Kind{p.kind}}, seq)
		}
		return s.folder.StateAt(ctx, seq)
	}
	query := url.Values{"at": {seq.String()}}
	switch {
	case p.has == log.ScopeCN:
		query.Set("cn", p.cn.String())
	case p.has == log.ScopeVNet:
		query.Set("vnet", strconv.FormatUint(uint64(p.vnet), 10))
	case p.kind != 0:
		query.Set("kind", p.kind.String())
	}
	answer, err := s.api.State(ctx, query)
	if err != nil {
		return nil, err
	}
	state := projections.NewState()
	for _, o := range answer.Objects {
		if err := state.Load(projections.Record{Object: o.Object, Revision: o.Revision, Seq: o.Seq}); err != nil {
			return nil, err
		}
	}
	return state, nil
}

// entries yields the entries after a seq, up to the head at the time of opening.
func (s *pastLog) entries(ctx context.Context, after log.Seq) iter.Seq2[log.Entry, error] {
	if s.folder == nil {
		return func(yield func(log.Entry, error) bool) {
			for e, err := range s.api.Entries(ctx, after) {
				if err == nil && e.Seq > s.head || !yield(e, err) {
					return
				}
			}
		}
	}
	return func(yield func(log.Entry, error) bool) {
		for after < s.head {
			batch, err := s.folder.Entries(after, readAtOnce)
			if err == nil && ctx.Err() != nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(log.Entry{}, err)
				return
			}
			for _, e := range batch {
				if !yield(e, nil) {
					return
				}
			}
			after = batch[len(batch)-1].Seq
		}
	}
}

// names returns what finds names in a log.
func (s *pastLog) names(ctx context.Context) *names.Finder {
	if s.folder != nil {
		return names.OfFolder(ctx, s.folder)
	}
	return names.OfServers(ctx, s.api)
}

// closeJoining closes the source and joins its error to err.
func closeJoining(s *pastLog, err *error) { *err = errors.Join(*err, s.close()) }
