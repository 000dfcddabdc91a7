package conformance

import (
	"encoding/json"
	"strings"
)

// Service is an interface of Triton whose base URL rows are sent to.
type Service string

// The services. A changefeed belongs to the service at which its listeners register.
const (
	NAPI  Service = "napi"
	CNAPI Service = "cnapi"
	VMAPI Service = "vmapi"
)

// Services are all of them, in the order of reports.
var Services = []Service{NAPI, CNAPI, VMAPI}

// Group is one file: rows that share fixtures and run in order. Groups share one server,
// and none may depend on what another left behind: each uses names, subnets and UUIDs of
// its own.
type Group struct {
	Name    string            // also the file's name, without .yaml
	Service Service           // at which its rows are sent, unless a row says otherwise
	Title   string            // a heading for people
	Values  map[string]string // constants, used as $(NAME)
	Setup   []*Row            // fixtures; if one fails, no row of the group is run
	Rows    []*Row
	Compare []*Listing // lists of which two servers must have the same objects
}

// Row is one call with what the documentation says of its answer.
type Row struct {
	ID     string  `json:"id"`     // unique among all groups: GROUP.NAME
	Source string  `json:"source"` // project, and file or section of the documentation
	Shows  string  `json:"shows"`  // what the row shows, for people
	At     Service `json:"at"`     // another service than the group's

	Call    string            `json:"call"` // METHOD /path
	Query   map[string]string `json:"query"`
	Headers map[string]string `json:"headers"`
	Body    any               `json:"body"` // JSON, in the answer's numbers json.Number
	Raw     *string           `json:"raw"`  // the body's bytes, in place of Body

	Expect
	Capture map[string]string `json:"capture"` // NAME: place in the answer, or "header NAME"
	Within  int               `json:"within"`  // seconds in which a GET is repeated until its answer is as expected

	ReadOnly  bool    `json:"read-only"` // a GET or HEAD that needs no fixtures of ours
	Departure string  `json:"departure"` // words of the item in docs/triton.md, section 5
	Ours      *Expect `json:"ours"`      // what Rutter answers where it departs
	Pending   bool    `json:"pending"`   // not built yet; allowed only while it is being built

	line int // in the file, of its first key
}

// Expect is what an answer must be like.
type Expect struct {
	Status  Statuses          `json:"status"`
	Code    string            `json:"code"`    // of a refusal: then the body has code, message and errors only
	Message any               `json:"message"` // a matcher; without it any text
	Errors  []any             `json:"errors"`  // the elements, in order, each with exactly these keys
	Answer  any               `json:"answer"`  // a matcher of the body
	Got     map[string]string `json:"answer-headers"`
}

// Listing is a list whose objects two servers are compared by.
type Listing struct {
	Path   string         `json:"path"`
	Each   string         `json:"each"`   // the path of an earlier list: this one is read for each object's key, $(each)
	Key    string         `json:"key"`    // the field that names an object
	Paged  bool           `json:"paged"`  // the list has limit and offset
	Page   int            `json:"page"`   // objects of a page, 1 to 1000; 0 is 1000. Fewer where objects are large
	Except []string       `json:"except"` // fields that differ between two servers of one cloud, such as times of receipt
	Skip   map[string]any `json:"skip"`   // objects with these values are left out

	line int
}

// Statuses are HTTP statuses that are all as documented: one number, or a list.
type Statuses []int

// UnmarshalJSON reads one number, or a list of numbers.
func (s *Statuses) UnmarshalJSON(b []byte) error {
	var one int
	if err := json.Unmarshal(b, &one); err == nil {
		*s = Statuses{one}
		return nil
	}
	var more []int
	err := json.Unmarshal(b, &more)
	*s = more
	return err
}

// Method is the row's HTTP method.
func (r *Row) Method() string {
	method, _, _ := strings.Cut(r.Call, " ")
	return method
}

// Path is the row's path, with its values not yet filled in.
func (r *Row) Path() string {
	_, path, _ := strings.Cut(r.Call, " ")
	return path
}

// service is where the row is sent.
func (r *Row) service(g *Group) Service {
	if r.At != "" {
		return r.At
	}
	return g.Service
}
