package support

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// A compute node sends a part over its session, whose answers are small, in pages of the
// part's gzip form.

// pathPrefix begins the path of a request for a page: pathPrefix PART/ID/OFFSET.
const pathPrefix = "/support/"

// Bounds of pages, and why.
const (
	// PageBytes is how many bytes one page carries. In JSON they are a third more, and an
	// answer of a compute node has at most 64 KiB (feed.MaxCall).
	PageBytes = 32 << 10
	// MaxPacked is how many bytes the gzip form of a part may have: 4 MiB of text have
	// a tenth of that. Pages are at most MaxPacked/PageBytes (64).
	MaxPacked = 2 << 20
	// keepPages is how long a node keeps a part for the next page.
	keepPages = 30 * time.Second
)

// Page is a piece of a part.
type Page struct {
	ID     uint64 `json:"id"`     // of this collection of the part
	Size   int    `json:"size"`   // bytes of all pages
	Offset int    `json:"offset"` // of Data
	Data   []byte `json:"data"`
}

// PagePath is the path of a request for a page. id 0 asks for a new collection.
func PagePath(part string, id uint64, offset int) string {
	return pathPrefix + part + "/" + strconv.FormatUint(id, 10) + "/" + strconv.Itoa(offset)
}

// Pager answers requests for pages. It keeps the part that was collected last.
type Pager struct {
	source *Source

	mu     sync.Mutex // protects what follows
	last   uint64     // id
	name   string     // of the part
	packed []byte
	until  time.Time
}

// NewPager returns the pager of a source.
func NewPager(source *Source) *Pager { return &Pager{source: source} }

// errPage: a request for a page is wrong, or comes too late.
var errPage = errors.New("support: no such page: begin again")

// IsPage reports whether a request asks for a page.
func IsPage(method, path string) bool {
	return method == http.MethodGet && strings.HasPrefix(path, pathPrefix)
}

// Answer answers a request for a page: the status of HTTP, and the JSON text.
func (p *Pager) Answer(ctx context.Context, path string) (status int, body []byte) {
	page, err := p.page(ctx, strings.TrimPrefix(path, pathPrefix))
	status = http.StatusOK
	var answer any = page
	if err != nil {
		code := "ServiceUnavailable"
		status = http.StatusServiceUnavailable
		if errors.Is(err, ErrNoPart) || errors.Is(err, errPage) {
			status, code = http.StatusNotFound, "ResourceNotFound"
		}
		answer = map[string]string{"code": code, "message": err.Error()}
	}
	body, err = json.Marshal(answer)
	if err != nil {
		return http.StatusInternalServerError, nil
	}
	return status, body
}

func (p *Pager) page(ctx context.Context, rest string) (page Page, err error) {
	words := strings.Split(rest, "/")
	if len(words) != 3 {
		return page, errPage
	}
	id, err1 := strconv.ParseUint(words[1], 10, 64)
	offset, err2 := strconv.Atoi(words[2])
	if err1 != nil || err2 != nil || offset < 0 {
		return page, errPage
	}
	if id == 0 {
		if id, err = p.collect(ctx, words[0]); err != nil {
			return page, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if id != p.last || words[0] != p.name || time.Now().After(p.until) || offset > len(p.packed) {
		return page, errPage
	}
	p.until = time.Now().Add(keepPages)
	return Page{ID: id, Size: len(p.packed), Offset: offset, Data: p.packed[offset:min(len(p.packed), offset+PageBytes)]}, nil
}

// collect collects a part for later pages.
func (p *Pager) collect(ctx context.Context, name string) (id uint64, err error) {
	text, err := p.source.Collect(ctx, name)
	if err != nil {
		return 0, err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(text)
	if err = errors.Join(err, z.Close()); err != nil {
		return 0, err
	}
	if packed.Len() > MaxPacked {
		return 0, fmt.Errorf("%s: %d bytes when packed, and at most %d are sent", name, packed.Len(), MaxPacked)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	p.name, p.packed, p.until = name, packed.Bytes(), time.Now().Add(keepPages)
	return p.last, nil
}

// Ask sends one request for a page to a compute node, and returns the status of HTTP and
// the body of its answer.
type Ask func(ctx context.Context, path string) (status int, body []byte, err error)

// ErrAnswer: a compute node answers what no agent of ours does.
var ErrAnswer = errors.New("its agent's answer is no page of a support bundle")

// Fetch gets a part of a compute node page by page. It trusts nothing of the answers: they
// are bounded in number and in size, packed and unpacked. Errors: ErrAnswer, those of ask,
// and what the node says.
func Fetch(ctx context.Context, part string, ask Ask) ([]byte, error) {
	var packed []byte
	var id uint64
	for size := 1; len(packed) < size; {
		status, body, err := ask(ctx, PagePath(part, id, len(packed)))
		if err != nil {
			return nil, err
		}
		if status != http.StatusOK {
			return nil, saidBy(status, body)
		}
		var page Page
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, ErrAnswer
		}
		first := id == 0
		switch {
		case page.ID == 0 || page.Size < 1 || page.Size > MaxPacked || page.Offset != len(packed),
			len(page.Data) == 0 || len(page.Data) > PageBytes || len(packed)+len(page.Data) > page.Size,
			!first && (page.ID != id || page.Size != size):
			return nil, ErrAnswer
		case len(page.Data) < PageBytes && len(packed)+len(page.Data) < page.Size:
			return nil, ErrAnswer // only the last page is smaller, so their number is bounded
		}
		id, size = page.ID, page.Size
		packed = append(packed, page.Data...)
	}
	return unpack(packed)
}

// saidBy is the error of an answer that is no success.
func saidBy(status int, body []byte) error {
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &said) != nil || said.Message == "" {
		return fmt.Errorf("its agent cannot be asked for this (status %d): upgrade it", status)
	}
	return errors.New(Printable(said.Message))
}

// maxSaid bounds what is repeated of a message of another machine, in bytes.
const maxSaid = 400

// Printable is a text of another machine as it may stand in a message: cut, in one line, and
// without characters that are hidden or that change how a terminal shows others.
func Printable(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxSaid)], "?")
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r) || r < ' ':
			return ' '
		}
		return '?'
	}, text)
}

// unpack reads the gzip form of a part, up to MaxPart and what a cut says.
func unpack(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, ErrAnswer
	}
	const most = MaxPart + 100
	text, err := io.ReadAll(io.LimitReader(z, most+1))
	if err != nil || len(text) > most {
		return nil, ErrAnswer
	}
	return text, nil
}
