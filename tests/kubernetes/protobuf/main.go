// Command protobuf writes the table by which hub/apiserver reads protobuf request bodies: for every stable built-in
// kind the number, JSON name and type of each field. It is taken from the Go types themselves, by reflection, because
// the .proto files do not say which fields are pointers, and so whether a zero was written.
//
//	go run ./protobuf | gzip -9 -n > ../../hub/apiserver/schema/protobuf-1.35.json.gz
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Types with a JSON form of their own; the letters are known to hub/apiserver/src/protobuf.
var special = map[reflect.Type]string{
	reflect.TypeOf(metav1.Time{}):                               "T",
	reflect.TypeOf(metav1.MicroTime{}):                          "U",
	reflect.TypeOf(metav1.Duration{}):                           "D",
	reflect.TypeOf(metav1.FieldsV1{}):                           "r",
	reflect.TypeOf(resource.Quantity{}):                         "q",
	reflect.TypeOf(intstr.IntOrString{}):                        "x",
	reflect.TypeOf(runtime.RawExtension{}):                      "r",
	reflect.TypeOf(apiextensions.JSON{}):                        "r",
	reflect.TypeOf(apiextensions.JSONSchemaPropsOrBool{}):       "ob",
	reflect.TypeOf(apiextensions.JSONSchemaPropsOrArray{}):      "oa",
	reflect.TypeOf(apiextensions.JSONSchemaPropsOrStringArray{}): "os",
}

var schemaProps = reflect.TypeOf(apiextensions.JSONSchemaProps{})

// A field is [number, JSON name, type, flags, message]. Flags: 1 repeated, 2 map, 4 a zero is not written, 8 its
// fields stand in the object around it.
type table struct {
	Kinds    map[string]int    `json:"kinds"`
	Messages [][][]interface{} `json:"messages"`
	index    map[reflect.Type]int
}

func (t *table) message(of reflect.Type) int {
	if at, ok := t.index[of]; ok {
		return at
	}
	at := len(t.Messages)
	t.index[of] = at
	t.Messages = append(t.Messages, nil)
	fields := [][]interface{}{}
	for i := 0; i < of.NumField(); i++ {
		if field := t.field(of.Field(i)); field != nil {
			fields = append(fields, field)
		}
	}
	sort.Slice(fields, func(a, b int) bool { return fields[a][0].(int) < fields[b][0].(int) })
	t.Messages[at] = fields
	return at
}

func (t *table) field(field reflect.StructField) []interface{} {
	tag := strings.Split(field.Tag.Get("protobuf"), ",")
	if len(tag) < 2 {
		return nil
	}
	number, err := strconv.Atoi(tag[1])
	if err != nil {
		panic(field.Name)
	}
	names := strings.Split(field.Tag.Get("json"), ",")
	flags, of, pointer := 0, field.Type, false
	for _, option := range names[1:] {
		if option == "inline" {
			flags |= 8
		}
	}
	if names[0] == "" && flags&8 == 0 {
		if !field.Anonymous {
			panic(field.Name)
		}
		flags |= 8
	}
	omitted := strings.Contains(field.Tag.Get("json"), ",omit")
	if of.Kind() == reflect.Pointer {
		of, pointer = of.Elem(), true
	}
	if of.Kind() == reflect.Map {
		flags |= 2
		of = of.Elem()
	} else if of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Uint8 && !isMessage(of) {
		flags |= 1
		of = of.Elem()
	}
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if !pointer && omitted && flags&3 == 0 {
		flags |= 4
	}
	kind, message := t.kind(of)
	return []interface{}{number, names[0], kind, flags, message}
}

// Named lists that are messages of their own, such as authorization's ExtraValue.
func isMessage(of reflect.Type) bool {
	_, ok := reflect.PointerTo(of).MethodByName("MarshalToSizedBuffer")
	return ok
}

func (t *table) kind(of reflect.Type) (string, int) {
	if letter, ok := special[of]; ok {
		if letter[0] == 'o' {
			return letter, t.message(schemaProps)
		}
		return letter, 0
	}
	switch of.Kind() {
	case reflect.String:
		return "s", 0
	case reflect.Bool:
		return "b", 0
	case reflect.Int32, reflect.Int64, reflect.Int:
		return "i", 0
	case reflect.Float64:
		return "d", 0
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return "y", 0
		}
		if isMessage(of) && of.Elem().Kind() == reflect.String {
			return "w", 0
		}
	case reflect.Struct:
		return "m", t.message(of)
	}
	panic(fmt.Sprint("no protobuf form for ", of))
}

func main() {
	check := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	check(apiextensions.AddToScheme(scheme.Scheme))
	check(apiregistration.AddToScheme(scheme.Scheme))
	stable := regexp.MustCompile("^v[0-9]+$")
	t := &table{Kinds: map[string]int{}, index: map[reflect.Type]int{}}
	known := scheme.Scheme.AllKnownTypes()
	names := []string{}
	types := map[string]reflect.Type{}
	for kind, of := range known {
		options := strings.HasSuffix(kind.Kind, "Options")
		if !stable.MatchString(kind.Version) || strings.HasSuffix(kind.Kind, "List") || options || kind.Kind == "WatchEvent" || !isMessage(of) {
			continue
		}
		name := kind.Group + "/" + kind.Version + "/" + kind.Kind
		names = append(names, name)
		types[name] = of
	}
	sort.Strings(names)
	for _, name := range names {
		t.Kinds[name] = t.message(types[name])
	}
	t.Kinds["/v1/DeleteOptions"] = t.message(reflect.TypeOf(metav1.DeleteOptions{}))
	check(json.NewEncoder(os.Stdout).Encode(t))
}
