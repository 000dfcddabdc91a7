package openapi

import "rutter/log"

// About is what clients are told of an endpoint: docs/api.md and GET /openapi.json are made
// of it. Who may ask is not in it, because the matrix of rights knows that.
type About struct {
	Section string // heading of docs/api.md
	Answers string // what it answers, as docs/api.md has it
	// Query are the names of its parameters, beside those of every read. Each has a row in
	// parameters.
	Query []string
	// Body is a value of the type that the request's body is read into; nil: it has none.
	// Answer is one of the type that a successful answer is written from; nil: there is no
	// body, or one of the type Media. Both may be an Object, or List.
	Body, Answer any
	Media        string // of the answer, if it is not JSON; for lines of JSON, Answer is one line
	Status       int    // of success; 0: 200
}

// Object is an object of a kind, as a value of About. As a body it has the fields that a
// client may send, and needs none of them for an update.
type Object struct {
	Kind   log.Kind
	Update bool
}

// List is a list of objects of a kind, as a value of About.
type List log.Kind

// Endpoint is one endpoint with what is known of it.
type Endpoint struct {
	Method  string
	Pattern string // of net/http's ServeMux
	Who     string // who may ask, in words
	About   About
}
