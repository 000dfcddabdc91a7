package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"rutter/api/internal/rest"
)

// openAPI returns the document that a server answers.
func (b *bed) openAPI() (raw []byte, document map[string]any) {
	b.T.Helper()
	answer := b.call(http.MethodGet, "/openapi.json", "")
	if answer.Code != http.StatusOK {
		b.T.Fatalf("GET /openapi.json: %d %s", answer.Code, answer.Body)
	}
	raw = answer.Body.Bytes()
	if err := json.Unmarshal(raw, &document); err != nil {
		b.T.Fatal(err)
	}
	return raw, document
}

// The document is one of OpenAPI 3.1 by its own schema, and has every route.
func TestOpenAPIIsValid(t *testing.T) {
	b := newBed(t)
	raw, document := b.openAPI()
	parsed, err := libopenapi.NewDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	checked, errs := validator.NewValidator(parsed)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if valid, problems := checked.ValidateDocument(); !valid {
		for _, p := range problems {
			t.Errorf("%s: %s", p.Message, p.Reason)
			for _, why := range p.SchemaValidationErrors {
				t.Errorf("   %s: %s", why.FieldPath, why.Reason)
			}
		}
	}
	paths := document["paths"].(map[string]any)
	operations := 0
	for _, item := range paths {
		operations += len(item.(map[string]any))
	}
	if want := len(b.s.Endpoints()); operations != want {
		t.Errorf("%d operations, want one of each of the %d routes", operations, want)
	}
}

// Each read takes exactly the parameters that the document names: the refusal of another
// one lists them.
func TestOpenAPIHasTheParameters(t *testing.T) {
	b := newBed(t)
	const stranger = "no_such_parameter"
	for _, e := range b.s.Described() {
		switch e.Pattern { // they take any name, or none
		case "/vms/lookup", "/feed", "/write", "/livez", "/metrics", "/console", "/console/", "/ping", "/cns/{id}/feed", "/snapshot":
			continue
		}
		if e.Method != http.MethodGet {
			continue
		}
		path := strings.NewReplacer("/vms/{id}", "/vms/5595d88c-6e4d-4bda-b58e-97dd02e30001", "{id}", idFor(e.Pattern), "{subject...}", "cn=x", "{vnet}", "5", "{$}", "").Replace(e.Pattern)
		answer := b.call(http.MethodGet, path+"?"+stranger+"=1", "")
		var failed struct {
			Errors []struct{ Field, Remedy string } `json:"errors"`
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &failed); err != nil || len(failed.Errors) != 1 || failed.Errors[0].Field != stranger {
			t.Errorf("%s %s: %d %s: a parameter that it does not have was not refused", e.Method, path, answer.Code, answer.Body)
			continue
		}
		_, list, _ := strings.Cut(failed.Errors[0].Remedy, "one of: ")
		takes := slices.DeleteFunc(strings.Split(list, ", "), func(name string) bool {
			return strings.HasSuffix(e.Pattern, "/history") && strings.Contains(e.Pattern, "{id}") && (name == "kind" || name == "object") // the path names them
		})
		says := append(slices.Clone(e.About.Query), rest.Freshness...)
		slices.Sort(takes)
		slices.Sort(says)
		if !slices.Equal(slices.Compact(takes), slices.Compact(says)) {
			t.Errorf("%s takes %s\n   the document says %s", e.Pattern, takes, says)
		}
	}
}

// idFor is an id of the form that a path wants.
func idFor(pattern string) string {
	switch {
	case strings.HasPrefix(pattern, "/nics/"):
		return "90:b8:d0:10:02:00"
	case strings.HasPrefix(pattern, "/nic_tags/"), strings.HasPrefix(pattern, "/settings/"):
		return "external"
	}
	return "5595d88c-6e4d-4bda-b58e-97dd02e30001"
}

// What a server answers fits the schema that the document has for it.
func TestAnswersFitOpenAPI(t *testing.T) {
	b := newBed(t)
	b.furnish()
	b.must("POST", "/vms", `{"owner_uuid":"930896af-bf8c-48d4-885c-6573a94b1853","alias":"web0"}`)
	_, document := b.openAPI()
	for _, path := range []string{
		"/nic_tags", "/networks", "/nics", "/servers", "/vms", "/settings", "/cluster", "/status", "/cns", "/grants", "/ping",
		"/log", "/log/state",
	} {
		answer := b.call(http.MethodGet, path, "")
		if answer.Code != http.StatusOK {
			t.Errorf("GET %s: %d %s", path, answer.Code, answer.Body)
			continue
		}
		plain, _, _ := strings.Cut(path, "?")
		content := at(document, "paths", plain, "get", "responses", "200", "content")
		for media, form := range content {
			resolved := resolve(t, document, form.(map[string]any)["schema"].(map[string]any))
			texts := []string{answer.Body.String()}
			if media == linesMedia {
				texts = strings.Split(strings.TrimSpace(texts[0]), "\n")
			}
			for _, text := range texts {
				var value any
				if err := json.Unmarshal([]byte(text), &value); err != nil {
					t.Fatalf("GET %s: %v in %s", path, err, text)
				}
				if err := resolved.Validate(value); err != nil {
					t.Errorf("GET %s: %v in %.300s", path, err, text)
				}
				if list, is := value.([]any); is && len(list) == 0 && path != "/cns" && path != "/grants" && path != "/settings" {
					t.Errorf("GET %s: nothing was answered, so nothing was compared", path)
				}
			}
		}
	}
}

func at(v map[string]any, path ...string) map[string]any {
	for _, name := range path {
		v, _ = v[name].(map[string]any)
	}
	return v
}

// resolve makes a schema of the document, with its components, ready to validate.
func resolve(t *testing.T, document, form map[string]any) *jsonschema.Resolved {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"$defs": at(document, "components", "schemas"), "allOf": []any{form}})
	if err != nil {
		t.Fatal(err)
	}
	raw = []byte(strings.ReplaceAll(string(raw), "#/components/schemas/", "#/$defs/"))
	s := new(jsonschema.Schema)
	if err := json.Unmarshal(raw, s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}
