// Package release tests, on the artefacts that make release makes, that they have what
// docs/release.md says, that tools of others read them, and that the same source gives
// the same bytes.
package release
