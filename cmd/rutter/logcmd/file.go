package logcmd

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/logprint"
	"rutter/cmd/rutter/output"
	"rutter/cmd/rutter/term"
	"rutter/log"
	"rutter/log/archive"
	"rutter/log/line"
)

func dump(c *cli.Context) (err error) {
	r, err := newReading(c)
	if err != nil {
		return err
	}
	limit := c.Uint64("limit")
	if c.NArg() > 0 {
		if err := r.shown(c); err != nil {
			return err
		}
		limit = 1
	} else if err := r.from(c.String("from")); err != nil {
		return err
	}
	from, err := openLog(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	after, err := beginOf(c, from, r)
	if err != nil {
		return err
	}
	w := logprint.NewWriter(c.App.Writer, term.Terminal(c.App.Writer))
	n := uint64(0)
	for e, err := range selected(from.entries(c.Context, after), r.filter) {
		if err == nil {
			err = w.Append(func(b []byte) ([]byte, error) { return appendDump(b, e, c.String("output") == "ndjson") })
		}
		if err != nil {
			return errors.Join(logprint.Ended(c.Context, err, false), w.Flush())
		}
		if n++; n == limit {
			break
		}
	}
	return w.Flush()
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendDump appends an entry with all stored bytes. Servers send only the first 8
// bytes of a chain hash.
func appendDump(b []byte, e log.Entry, asJSON bool) ([]byte, error) {
	hash := e.Hash.String()
	if [24]byte(e.Hash[8:]) == ([24]byte{}) {
		hash = e.Hash.Prefix().String()
	}
	sum := fmt.Sprintf("%08x", crc32.Checksum(e.Bytes, castagnoli))
	if asJSON {
		text, err := json.Marshal(struct {
			Seq   log.Seq   `json:"seq"`
			Chain string    `json:"chain"`
			CRC   string    `json:"crc32c"`
			Bytes string    `json:"bytes"`
			Entry log.Entry `json:"entry"`
		}{e.Seq, hash, sum, hex.EncodeToString(e.Bytes), e})
		return append(append(b, text...), '\n'), err
	}
	event, err := e.Event()
	if err != nil {
		return b, err
	}
	if b, err = line.NewPrinter(line.Options{}).Append(b, log.Line{Seq: e.Seq, Chain: e.Hash.Prefix(), Event: event}); err != nil {
		return b, err
	}
	b = fmt.Appendf(b, "  revision %d, change %s, %d more of it, scopes %v\n  chain %s, crc32c %s, %d bytes, format %d\n",
		event.Revision, event.ChangeID, event.More, event.Scopes, hash, sum, len(e.Bytes), e.Bytes[0])
	for text := range strings.Lines(hex.Dump(e.Bytes)) {
		b = append(append(b, "  "...), text...)
	}
	return append(b, '\n'), nil
}

// progressEvery is the number of entries between two lines of progress.
const progressEvery = 1 << 20

// exportAfter returns the seq that --after names. A time is that of the last entry that is
// not after it.
func exportAfter(c *cli.Context) (seq log.Seq, err error) {
	m, err := term.Moment(c.Context, c.String("after"))
	if err != nil {
		return 0, term.Usagef("--after %w", err)
	}
	if m.IsSeq {
		return m.Seq, nil
	}
	past, err := openPast(c)
	if err != nil {
		return 0, err
	}
	defer closeJoining(past, &err)
	return past.seqAt(c.Context, m.String())
}

func export(c *cli.Context) (err error) {
	if c.NArg() != 1 {
		return term.Usagef("want one argument, FILE, or - for standard output")
	}
	name := c.Args().First()
	from, err := openLog(c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	var after *log.Seq
	if c.IsSet("after") {
		seq, err := exportAfter(c)
		if err != nil {
			return err
		}
		after = &seq
	}
	header, head, err := from.begins(c.Context, after)
	if err != nil {
		return err
	}
	if name == "-" {
		out, err := output.Binary(c.App.Writer)
		if err != nil {
			return err
		}
		return writeArchive(c, out, from, header, head)
	}
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return term.Usagef("%s is there already: give another name, or remove it", name)
	}
	if err != nil {
		return err
	}
	err = writeArchive(c, file, from, header, head)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(name)) // an incomplete file is of no use
	}
	return nil
}

func writeArchive(c *cli.Context, out io.Writer, from reader, header archive.Header, head log.Cursor) error {
	w, err := archive.NewWriter(out, header)
	if err != nil {
		return err
	}
	start, last, n := time.Now(), header.Floor, 0
	for e, err := range from.entries(c.Context, header.Floor) {
		if err == nil {
			err = w.Append(e)
		}
		if err != nil {
			return logprint.Ended(c.Context, err, false)
		}
		last = e.Seq
		n++
		if last == head.Seq {
			break // later entries are not exported
		}
		if n%progressEvery == 0 {
			output.Printf(c.App.ErrWriter, "rutter: %d entries, at #%d of %d\n", n, last, head.Seq)
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	output.Printf(c.App.ErrWriter, "rutter: %d entries of cluster %s, #%d to #%d, in %v\n", n, header.Cluster, header.Floor+1, last, time.Since(start).Round(time.Millisecond))
	return nil
}
