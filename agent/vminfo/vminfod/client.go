package vminfod

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vminfo/vmstore"
	"rutter/log"
)

// Errors of a Client.
var (
	// ErrEnded: the stream of events ended unexpectedly. What came after is unknown;
	// begin again, or resume.
	ErrEnded = errors.New("vminfo: the stream of events ended prematurely")
	// ErrLimited: the vminfod shows this client the public fields of VMs only, which are
	// no truth to follow.
	ErrLimited = errors.New("vminfo: it shows state and size of VMs only to this user: name the user in its --vminfod-users")
	// ErrLine: a line of the stream is not an event.
	ErrLine = errors.New("vminfo: not a line of events")
)

// StatusError is an answer other than 200.
type StatusError struct {
	Code int
	Text string // of the answer
}

// Error prints as vminfod's client does, and the answer after it.
func (e *StatusError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("bad statusCode: %d", e.Code)
	}
	return fmt.Sprintf("bad statusCode: %d: %s", e.Code, e.Text)
}

// Bounds of a Client.
const (
	maxAnswer   = 256 << 20 // bytes of one answer, and of one line of events
	maxErrorLen = 1 << 10   // bytes of an answer that is an error
)

// Client asks a vminfod, ours or Triton's. It may be used by any goroutine.
type Client struct {
	base  string
	agent string
	// Transport carries the requests; nil means one of its own.
	Transport http.RoundTripper
}

// New returns a client of the vminfod at address (host:port). name is sent as its user
// agent, as vminfod's clients do.
func New(address, name string) *Client {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return &Client{base: "http://" + address, agent: fmt.Sprintf("%s - %s/%d (%s)", name, host, os.Getpid(), strings.Join(os.Args[1:min(2, len(os.Args))], ""))}
}

// Open sends a GET and returns an answer with status 200; the caller closes its body.
// Errors: StatusError.
func (c *Client) Open(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", c.agent)
	response, err := (&http.Client{Transport: c.Transport}).Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, maxErrorLen)) // the status code is enough
		return nil, &StatusError{response.StatusCode, string(text)}
	}
	return response, nil
}

// Get returns the answer to a GET of path. Errors: *StatusError, and those of
// the network.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	response, err := c.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil && len(text) > maxAnswer {
		err = fmt.Errorf("vminfo: %s: an answer of more than %d bytes", path, maxAnswer)
	}
	return text, err
}

// VM returns one VM by its zonename or UUID.
func (c *Client) VM(ctx context.Context, name string) ([]byte, error) {
	return c.Get(ctx, "/vms/"+url.PathEscape(name))
}

// Position is a position in a stream of events, from which the stream can be resumed.
// The zero Position is the beginning: the complete set, then the events.
type Position struct {
	Log string
	Seq uint64
}

// Message is one line of the stream.
type Message struct {
	Type     string // ready, resumed, lost, create, modify or delete
	Date     time.Time
	UUID     string // of the VM; of the stream for ready and resumed
	Zonename string
	VM       vmdoc.Value   // of create and modify
	VMs      []vmdoc.Value // of ready
	Changes  []vmdoc.Change
	Seq      uint64 // 0: the server has none
	Log      string // of ready and resumed
	Reset    string // of ready: why the stream was not resumed
	Line     []byte // as received, without its newline
}

// ParseMessage reads a line of the stream. Unknown types are returned as they are. It
// keeps the line.
func ParseMessage(line []byte) (Message, error) {
	v, err := vmdoc.ParseValue(line)
	if err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrLine, err)
	}
	m := Message{
		Type: v.Text("type"), UUID: v.Text("uuid"), Zonename: v.Text("zonename"),
		Log: v.Text("log"), Reset: v.Text("reset"), Line: line,
	}
	if m.Type == "" {
		return Message{}, fmt.Errorf("%w: it has no type", ErrLine)
	}
	m.Date, _ = time.Parse(time.RFC3339, v.Text("date")) // for display only
	m.VM, _ = v.Get("vm")
	if seq, ok := v.Get("seq"); ok {
		if _, err := fmt.Sscanf(seq.Literal(), "%d", &m.Seq); err != nil {
			return Message{}, fmt.Errorf("%w: seq %s", ErrLine, seq.AppendJSON(nil))
		}
	}
	changes, _ := v.Get("changes")
	for _, c := range changes.Items() {
		m.Changes = append(m.Changes, vmdoc.ChangeOf(c))
	}
	return m, m.complete(v)
}

// complete checks what the type needs, and decodes the VMs of a ready line, an
// array in a string.
func (m *Message) complete(v vmdoc.Value) error {
	switch m.Type {
	case "ready":
		text, ok := v.Get("vms")
		inner, isText := text.String()
		if !ok || !isText {
			return fmt.Errorf("%w: vms of a ready line is no string", ErrLine)
		}
		vms, err := vmdoc.ParseValue([]byte(inner))
		if err != nil || !vms.IsArray() {
			return fmt.Errorf("%w: vms of a ready line holds no array: %w", ErrLine, err)
		}
		m.VMs = vms.Items()
	case "create", "modify":
		if !m.VM.IsObject() {
			return fmt.Errorf("%w: %s without its vm", ErrLine, m.Type)
		}
	case "delete":
		if m.UUID == "" && m.Zonename == "" {
			return fmt.Errorf("%w: delete of nothing", ErrLine)
		}
	}
	return nil
}

// Events is an open stream of events. One goroutine reads it; Close may be
// called from any.
type Events struct {
	Ready    Message  // the first line: ready, or resumed
	Position Position // after the last message that Next returned
	Limited  bool     // the vminfod shows this client the public fields of VMs only

	body io.ReadCloser
	read *bufio.Reader
}

// Events opens the stream of events from a position on, and reads its first line. ctx
// ends it.
func (c *Client) Events(ctx context.Context, place Position) (*Events, error) {
	path := "/events"
	if place.Log != "" {
		path += "?" + url.Values{"log": {place.Log}, "after": {fmt.Sprint(place.Seq)}}.Encode()
	}
	response, err := c.Open(ctx, path)
	if err != nil {
		return nil, err
	}
	e := &Events{body: response.Body, read: bufio.NewReaderSize(response.Body, 64<<10), Limited: response.Header.Get(vmdoc.LimitedHeader) != ""}
	if e.Ready, err = e.next(); err == nil && e.Ready.Type != "ready" && e.Ready.Type != "resumed" {
		err = fmt.Errorf("%w: the first is %s, want ready", ErrLine, e.Ready.Type)
	}
	if err != nil {
		_ = e.Close()
		return nil, err
	}
	e.Position = Position{Log: e.Ready.Log, Seq: e.Ready.Seq}
	return e, nil
}

// Close ends the stream.
func (e *Events) Close() error { return e.body.Close() }

// Next returns the next message; ErrEnded when the stream ended.
func (e *Events) Next() (Message, error) {
	m, err := e.next()
	if err == nil && m.Type == "lost" {
		err = fmt.Errorf("%w: too slow for it", vmstore.ErrLost)
	}
	if err == nil && m.Seq > 0 {
		e.Position.Seq = m.Seq
	}
	return m, err
}

func (e *Events) next() (Message, error) {
	line, err := readLine(e.read)
	if err != nil {
		return Message{}, err
	}
	return ParseMessage(line)
}

// readLine returns the next line, of at most maxAnswer bytes.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > maxAnswer {
			return nil, fmt.Errorf("%w: longer than %d bytes", ErrLine, maxAnswer)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, fmt.Errorf("%w: %w", ErrEnded, err)
		}
	}
}

// idOf returns the UUID of the VM of a message.
func (m Message) idOf() (log.UUID, error) {
	text := m.UUID
	if text == "" {
		text = m.Zonename
	}
	return log.ParseUUID(text)
}
