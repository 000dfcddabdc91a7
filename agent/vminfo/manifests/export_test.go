package manifests

// For the tests of a Folder from outside.
const (
	PublishEvery = publishEvery
	PublishBurst = publishBurst
)
