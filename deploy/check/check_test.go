// Package check tests what Keep is installed with: .goreleaser.yaml and the folders beside
// this one. It is a module of its own, so that what it needs stays out of Keep's.
package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// top is the root of the repository.
const top = "../.."

// project reads how a release is made. An unknown key is an error.
func project(t *testing.T) config.Project {
	t.Helper()
	p, err := config.Load(filepath.Join(top, ".goreleaser.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// released is where the command is that tests share; linking it takes ten seconds.
var released struct {
	dir  string
	once sync.Once
	ok   bool
}

func TestMain(m *testing.M) {
	code := m.Run()
	if released.dir != "" {
		os.RemoveAll(released.dir)
	}
	os.Exit(code)
}

// release returns the file of the command, built here as a release is. Nobody changes it.
func release(t *testing.T) string {
	t.Helper()
	released.once.Do(func() {
		var err error
		if released.dir, err = os.MkdirTemp("", "keep-release-"); err != nil {
			t.Fatal(err)
		}
		build(t, top, filepath.Join(released.dir, "keep"))
		released.ok = true
	})
	if !released.ok {
		t.Fatal("the command could not be built; another test says why")
	}
	return filepath.Join(released.dir, "keep")
}

// build builds the command in a checkout as a release does, into the file out.
func build(t *testing.T, dir, out string) {
	t.Helper()
	b := project(t).Builds[0]
	args := slices.Concat([]string{"build", "-buildvcs=false", "-o", out}, b.Flags, []string{"-ldflags", strings.Join(b.Ldflags, " "), b.Main})
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), b.Env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, said)
	}
}

// run runs a command that has to succeed, and returns what it says.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	said, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, said)
	}
	return string(said)
}

// needs skips a test without a program, but not in CI.
func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("there is no %s; test.sh installs it", program)
		}
		t.Skipf("there is no %s", program)
	}
}

// The archives are for six platforms, static, and name no place of the machine that built them.
func TestRelease(t *testing.T) {
	p := project(t)
	b := p.Builds[0]
	if got, want := fmt.Sprint(b.Goos, b.Goarch, b.Env, b.Flags), "[linux darwin windows] [amd64 arm64] [CGO_ENABLED=0] [-trimpath]"; got != want {
		t.Errorf("builds: %s, want %s", got, want)
	}
	if b.ModTimestamp == "" || p.Archives[0].BuildsInfo.MTime == "" || p.NFPMs[0].MTime == "" {
		t.Error("a file would have the time of its build")
	}
	for _, f := range p.Archives[0].Files {
		if f.Info.MTime == "" {
			t.Errorf("%s would have the time of its checkout", f.Source)
		}
	}
	if len(p.Signs) != 1 || p.Signs[0].Artifacts != "checksum" {
		t.Errorf("signs: %+v, want the checksums", p.Signs)
	}
	for _, d := range p.DockersV2 {
		if _, err := os.Stat(filepath.Join(top, d.Dockerfile)); err != nil {
			t.Error(err)
		}
	}
}

// Two checkouts in different places give the same bytes.
func TestReproducible(t *testing.T) {
	elsewhere := t.TempDir()
	for name := range strings.Lines(run(t, "git", "-C", top, "ls-files", "--cached", "--others", "--exclude-standard")) {
		name = strings.TrimSpace(name)
		data, err := os.ReadFile(filepath.Join(top, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed, and not committed
		}
		to := filepath.Join(elsewhere, name)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	here, there := release(t), filepath.Join(t.TempDir(), "keep")
	build(t, elsewhere, there)
	a, errA := os.ReadFile(here)
	b, errB := os.ReadFile(there)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Errorf("builds in two places differ: %d and %d bytes", len(a), len(b))
	}
	if bytes.Contains(a, []byte(os.TempDir()+"/Test")) || bytes.Contains(a, []byte("/root/")) {
		t.Error("the binary names a place of this machine")
	}
	if mib := len(a) >> 20; mib >= 90 {
		t.Errorf("the binary has %d MiB", mib)
	}
}

// packaged makes a package of the release with the command in it, and returns its file.
func packaged(t *testing.T, format, binary string) string {
	t.Helper()
	n := project(t).NFPMs[0]
	info := &nfpm.Info{
		Name: n.PackageName, Arch: "amd64", Platform: "linux", Version: "1.2.3", Maintainer: n.Maintainer, Vendor: n.Vendor,
		Description: n.Description, Homepage: n.Homepage, License: n.License,
	}
	for _, c := range n.Contents {
		one := files.Content{Source: c.Source, Destination: c.Destination, Type: c.Type}
		one.Source = filepath.Join(top, c.Source)
		info.Contents = append(info.Contents, &one)
	}
	info.Contents = append(info.Contents, &files.Content{Source: binary, Destination: filepath.Join(n.Bindir, "keep"), FileInfo: &files.ContentFileInfo{Mode: 0o755}})
	info.Scripts.PostInstall = filepath.Join(top, n.Scripts.PostInstall)
	info.Scripts.PreRemove = filepath.Join(top, n.Scripts.PreRemove)
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		t.Fatal(err)
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := packager.Package(info, &out); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "keep."+format)
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// The package holds the command, units that systemd takes and that are well shut in, and
// scripts that a shell can read.
func TestPackages(t *testing.T) {
	binary := release(t)
	if head, err := os.ReadFile(packaged(t, "rpm", binary)); err != nil || !bytes.HasPrefix(head, []byte{0xed, 0xab, 0xee, 0xdb}) {
		t.Errorf("the rpm is none: %v", err)
	}
	needs(t, "dpkg-deb")
	deb := packaged(t, "deb", binary)
	root := t.TempDir()
	run(t, "dpkg-deb", "--extract", deb, root)
	if got := run(t, filepath.Join(root, "usr/bin/keep"), "version"); !strings.Contains(got, "keep") {
		t.Errorf("keep version of the package: %s", got)
	}
	control := t.TempDir()
	run(t, "dpkg-deb", "--control", deb, control)
	for _, script := range []string{"postinst", "prerm"} {
		run(t, "sh", "-n", filepath.Join(control, script))
	}
	needs(t, "systemd-analyze")
	for _, name := range []string{"keep.service", "keep-proxy.service"} {
		checkUnit(t, root, name)
	}
}

// checkUnit has systemd read a unit of the package that was extracted to root.
func checkUnit(t *testing.T, root, name string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system", name))
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), name)
	here := strings.ReplaceAll(string(text), "/usr/bin/keep", filepath.Join(root, "usr/bin/keep"))
	if err := os.WriteFile(unit, []byte(here), 0o644); err != nil {
		t.Fatal(err)
	}
	if said := run(t, "systemd-analyze", "--recursive-errors=no", "--man=no", "verify", unit); strings.TrimSpace(said) != "" {
		t.Errorf("systemd says of %s: %s", name, said)
	}
	// From 0, shut in wholly, to 100. The sockets of a network alone are 3.
	run(t, "systemd-analyze", "--offline=yes", "--threshold=20", "security", unit)
}

// dirOf returns the directory of a module in the module cache, fetched if it has to be.
func dirOf(t *testing.T, module string) string {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir() // it is no dependency
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	out, err := cmd.Output()
	var got struct{ Dir, Error string }
	if err := errors.Join(err, json.Unmarshal(out, &got)); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s: %v %s", module, err, got.Error)
		}
		t.Skipf("%s cannot be fetched: %v %s", module, err, got.Error)
	}
	return got.Dir
}

// documents reads the documents of a YAML file as JSON values.
func documents(t *testing.T, file string) (all []any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var v any
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			return all
		}
		text, errText := json.Marshal(v)
		as, errAs := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err := errors.Join(err, errText, errAs); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, as)
	}
}

// compiled compiles the schema at a place of a file, after a change.
func compiled(t *testing.T, file, place string, change func(map[string]any)) *jsonschema.Schema {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	change(whole.(map[string]any))
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7)
	if err := c.AddResource("mem:///schema", whole); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mem:///schema" + place)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// compose.yaml is what the Compose Specification allows.
func TestCompose(t *testing.T) {
	schema := compiled(t, filepath.Join(dirOf(t, "github.com/compose-spec/compose-go/v2@v2.16.2"), "schema", "compose-spec.json"), "", func(map[string]any) {})
	for _, doc := range documents(t, "../container/compose.yaml") {
		if err := schema.Validate(doc); err != nil {
			t.Error(err)
		}
		doc.(map[string]any)["services"].(map[string]any)["keep"].(map[string]any)["restart_policy"] = "x"
		if err := schema.Validate(doc); err == nil {
			t.Error("an unknown key passes")
		}
	}
}

// The manifests are objects as the API of Kubernetes defines them, and have no field that it
// does not know.
func TestManifests(t *testing.T) {
	file := filepath.Join(dirOf(t, "k8s.io/kubectl@v0.37.2"), "testdata", "openapi", "swagger.json")
	closed := func(whole map[string]any) {
		// It says "string" of what may be a number, too.
		whole["definitions"].(map[string]any)["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = map[string]any{"type": []any{"string", "integer"}}
		budget := whole["definitions"].(map[string]any)["io.k8s.api.policy.v1beta1.PodDisruptionBudgetSpec"].(map[string]any)
		budget["properties"].(map[string]any)["unhealthyPodEvictionPolicy"] = map[string]any{"enum": []any{"IfHealthyBudget", "AlwaysAllow"}}
		for _, d := range whole["definitions"].(map[string]any) {
			if d := d.(map[string]any); d["properties"] != nil && d["additionalProperties"] == nil {
				d["additionalProperties"] = false
			}
		}
	}
	kinds := map[string]string{ // its definition of policy/v1 is missing, and the same as that before but for the field above

		"v1 ConfigMap": "io.k8s.api.core.v1.ConfigMap", "v1 Service": "io.k8s.api.core.v1.Service",
		"apps/v1 Deployment": "io.k8s.api.apps.v1.Deployment", "policy/v1 PodDisruptionBudget": "io.k8s.api.policy.v1beta1.PodDisruptionBudget",
		"v1 PersistentVolumeClaim": "io.k8s.api.core.v1.PersistentVolumeClaim", "batch/v1 CronJob": "io.k8s.api.batch.v1.CronJob",
	}
	docs := slices.Concat(documents(t, "../kubernetes/keep.yaml"), documents(t, "../kubernetes/backup.yaml"))
	for _, doc := range docs {
		o := doc.(map[string]any)
		name := fmt.Sprint(o["apiVersion"], " ", o["kind"])
		schema := compiled(t, file, "#/definitions/"+kinds[name], closed)
		if err := schema.Validate(doc); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		o["specs"] = nil
		if err := schema.Validate(doc); err == nil {
			t.Errorf("%s: an unknown field passes", name)
		}
	}
	if len(docs) != len(kinds) {
		t.Errorf("%d objects, want %d", len(docs), len(kinds))
	}
}
