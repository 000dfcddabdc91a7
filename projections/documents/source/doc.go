// Package source reads and writes the text of documents: YAML and JSON, several documents
// in a file, several files in a folder.
//
// It owns the form of the text and its limits. A document has the names kind, name, uuid,
// labels, options and spec; an unknown one is an error with the file, the line and the name
// that is most like it. What stands under spec, and what documents mean, is for package
// documents.
//
// YAML's aliases, anchors, merges and tags are refused: with them a small file can stand
// for a huge one, or mean something else than it seems to. A name that is written twice is
// refused too.
package source

// Limits of what is read. Errors name the one that was reached.
const (
	// MaxFileBytes bounds one file, or what is read from standard input: some 200,000
	// documents.
	MaxFileBytes = 64 << 20
	// MaxDocuments bounds the documents of all files together.
	MaxDocuments = 200_000
	// MaxFiles bounds the files of all folders together.
	MaxFiles = 10_000
	// MaxDepth bounds how deep a document is nested: what servers take of a VM's
	// properties, and what stands around them.
	MaxDepth = 40
)
