package listen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Times and bounds of a listener.
const (
	probeTime   = 2 * time.Second          // for the probe and the upgrade, each
	pingEvery   = 5 * time.Second          // so that a dead server is noticed
	pongTime    = 5 * time.Second          // for it to answer
	heartbeat   = 27817 * time.Millisecond // as sdc-changefeed sends them (spec/changefeed.md section 1.2)
	firstPause  = 50 * time.Millisecond
	mostPause   = 2 * time.Second
	maxMessage  = 1 << 20 // bytes of one text
	maxProbe    = 1 << 20 // bytes read of a probe's answer
	goodAfter   = 10 * time.Second
	jitterParts = 2 // a pause is between half of it and all
)

// ErrRejected is wrapped in what the Logger sees when a server closed the
// connection with a reason.
var ErrRejected = errors.New("listen: closed by the server")

// Want says which items of one resource are wanted.
type Want struct {
	Resource     string   `json:"resource"`
	SubResources []string `json:"subResources"`
}

// Bootstrap says at which position the next items begin.
type Bootstrap struct {
	Server string // its URL
	// Resumed: they follow the last item that the handler got. Else the objects of each
	// route must be read again, because items may have been missed.
	Resumed bool
	Reason  string // why not, if the server said so
	Routes  []Route
	Seq     uint64 // the position; 0 from a publisher other than Rutter
	Cursor  string
}

// Route is where the objects of a resource are listed.
type Route struct {
	Resource       string   `json:"resource"`
	SubResources   []string `json:"subResources"`
	BootstrapRoute string   `json:"bootstrapRoute"`
}

// Item is one change.
type Item struct {
	ChangeKind        Want   `json:"changeKind"`
	ChangedResourceID string `json:"changedResourceId"`
	Published         string `json:"published"` // milliseconds since 1970
	Seq               uint64 `json:"seq"`       // 0 from a publisher other than Rutter
	Cursor            string `json:"cursor"`
	// Text is the whole text of the item.
	Text json.RawMessage `json:"-"`
}

// Handler receives the items. An error ends Run.
type Handler struct {
	Bootstrap func(Bootstrap) error // nil: ignored
	Item      func(Item) error
}

// Config says what to listen to. Servers, Instance and Wants are required.
type Config struct {
	// Servers are base URLs, tried in turn from the first.
	Servers  []string
	Instance string // a second listener of the same instance replaces the first
	Service  string
	Wants    []Want
	// Cursor is where to continue, from an item or a bootstrap; "": at the head.
	Cursor string
	// Dial connects to servers at http; default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// DialTLS connects to servers at https; default: as the system trusts them.
	DialTLS func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger logs connections that end; default: discards.
	Logger *slog.Logger
}

// Listener listens. See the package comment for its concurrency.
type Listener struct {
	cfg    Config
	client *http.Client

	// cursor is touched by Run only.
	cursor string
}

// New returns a Listener, or says what is wrong with cfg.
func New(cfg Config) (*Listener, error) {
	if len(cfg.Servers) == 0 || cfg.Instance == "" || len(cfg.Wants) == 0 {
		return nil, errors.New("listen: Config needs Servers, Instance and Wants")
	}
	for _, server := range cfg.Servers {
		if u, err := url.Parse(server); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("listen: server %q: want a base URL, as in http://127.0.0.1:7420", server)
		}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	// The probe and the upgrade have separate connections, as in sdc-changefeed's
	// listener.
	transport := &http.Transport{DisableKeepAlives: true, DialContext: cfg.Dial, DialTLSContext: cfg.DialTLS}
	return &Listener{cfg: cfg, cursor: cfg.Cursor, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Run listens until ctx ends (its error) or the handler returns an error (that).
func (l *Listener) Run(ctx context.Context, h Handler) error {
	pause := firstPause
	for n := 0; ; n++ {
		server := strings.TrimRight(l.cfg.Servers[n%len(l.cfg.Servers)], "/")
		began := time.Now()
		registered, err := l.once(ctx, server, h)
		var refused *handlerError
		if errors.As(err, &refused) {
			return refused.err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		l.cfg.Logger.Warn("changefeed connection ended", "server", server, "error", err)
		if registered && time.Since(began) > goodAfter {
			pause = firstPause
		}
		if registered || (n+1)%len(l.cfg.Servers) == 0 { // all were tried
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause - rand.N(pause/jitterParts)):
			}
			pause = min(2*pause, mostPause)
		}
	}
}

// handlerError is an error of a Handler's function.
type handlerError struct{ err error }

func (e *handlerError) Error() string { return e.err.Error() }

// once listens on one server until the connection ends.
func (l *Listener) once(ctx context.Context, server string, h Handler) (registered bool, err error) {
	if err := l.probe(ctx, server); err != nil {
		return false, err
	}
	conn, err := l.upgrade(ctx, server)
	if err != nil {
		return false, err
	}
	defer conn.CloseNow()
	stop := context.AfterFunc(ctx, func() { _ = conn.CloseNow() })
	defer stop()
	if err := l.register(ctx, conn); err != nil {
		return false, err
	}
	first, err := l.bootstrap(ctx, conn, server)
	if err != nil {
		return false, err
	}
	l.cursor = first.Cursor
	if h.Bootstrap != nil {
		if err := h.Bootstrap(first); err != nil {
			return true, &handlerError{err}
		}
	}
	var beating sync.WaitGroup
	defer beating.Wait()
	defer conn.CloseNow()
	alive, cancel := context.WithCancel(ctx)
	defer cancel()
	beating.Go(func() { beat(alive, conn) })
	return true, l.read(ctx, conn, h)
}

// probe asks whether the server can serve.
func (l *Listener) probe(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/changefeeds", nil)
	if err != nil {
		return err
	}
	response, err := l.client.Do(request)
	if err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxProbe)) // only the status matters
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("probe %s: %s", server, response.Status)
	}
	return nil
}

// upgrade opens the websocket.
func (l *Listener) upgrade(ctx context.Context, server string) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	header := http.Header{"Accept-Version": {"~2"}}
	conn, _, err := websocket.Dial(ctx, server+"/changefeeds", &websocket.DialOptions{HTTPClient: l.client, HTTPHeader: header})
	if err != nil {
		return nil, fmt.Errorf("upgrade: %w", err)
	}
	conn.SetReadLimit(maxMessage)
	return conn, nil
}

// register says what is wanted, and from where.
func (l *Listener) register(ctx context.Context, conn *websocket.Conn) error {
	text, err := json.Marshal(struct {
		Instance  string `json:"instance"`
		Service   string `json:"service"`
		Resources []Want `json:"resources"`
		Cursor    string `json:"cursor"`
	}{l.cfg.Instance, l.cfg.Service, l.cfg.Wants, l.cursor})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	return conn.Write(ctx, websocket.MessageText, text)
}

// bootstrap reads the first text.
func (l *Listener) bootstrap(ctx context.Context, conn *websocket.Conn, server string) (Bootstrap, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*probeTime) // a server that is behind the cursor waits
	defer cancel()
	b := Bootstrap{Server: server}
	_, text, err := conn.Read(ctx)
	if err != nil {
		return b, closed(err)
	}
	var first struct {
		BootstrapRoutes []Route `json:"bootstrapRoutes"`
		Seq             uint64  `json:"seq"`
		Cursor          string  `json:"cursor"`
		Resumed         bool    `json:"resumed"`
		Reason          string  `json:"reason"`
	}
	if err := json.Unmarshal(text, &first); err != nil || first.BootstrapRoutes == nil {
		return b, fmt.Errorf("listen: the first text is no bootstrap: %.200s", text)
	}
	b.Resumed, b.Reason, b.Routes, b.Seq, b.Cursor = first.Resumed, first.Reason, first.BootstrapRoutes, first.Seq, first.Cursor
	return b, nil
}

// read passes items to the handler until the connection ends.
func (l *Listener) read(ctx context.Context, conn *websocket.Conn, h Handler) error {
	for {
		_, text, err := conn.Read(ctx)
		if err != nil {
			return closed(err)
		}
		it := Item{Text: text}
		if err := json.Unmarshal(text, &it); err != nil {
			return fmt.Errorf("listen: not an item: %.200s: %w", text, err)
		}
		if it.ChangeKind.Resource != "" { // else it only has the position of the feed
			if err := h.Item(it); err != nil {
				return &handlerError{err}
			}
		}
		if it.Cursor != "" {
			l.cursor = it.Cursor
		}
	}
}

// closed returns the reason of a close.
func closed(err error) error {
	var frame websocket.CloseError
	if errors.As(err, &frame) {
		return fmt.Errorf("%w: %d %s", ErrRejected, frame.Code, frame.Reason)
	}
	return err
}

// beat sends heartbeats, and closes the connection if the server sends nothing.
func beat(ctx context.Context, conn *websocket.Conn) {
	ping, beats := time.NewTicker(pingEvery), time.NewTicker(heartbeat)
	defer ping.Stop()
	defer beats.Stop()
	for {
		send := conn.Ping
		select {
		case <-ctx.Done():
			return
		case <-ping.C:
		case <-beats.C:
			send = func(ctx context.Context) error { return conn.Write(ctx, websocket.MessageText, []byte("heartbeat")) }
		}
		within, cancel := context.WithTimeout(ctx, pongTime)
		err := send(within)
		cancel()
		if err != nil {
			_ = conn.CloseNow()
			return
		}
	}
}
