{{/* Name of the chart, overridable. */}}
{{- define "npu-platform.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/*
Prefix of every object. 40 characters leave room for "-cleanup-hook" style suffixes and for the 17
characters that a Deployment adds to the names of its pods.
*/}}
{{- define "npu-platform.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "npu-platform.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Prefix of cluster-scoped objects: two releases of one name in two namespaces must not share them.
Never cut: these names may have 253 characters, and a cut could make two alike.
*/}}
{{- define "npu-platform.clusterName" -}}
{{- printf "%s-%s" (include "npu-platform.namespace" .) (include "npu-platform.fullname" .) -}}
{{- end -}}

{{/*
What ResourceSlices of this release are marked with, a label value: at most 63 characters, different
for two releases of one name.
*/}}
{{- define "npu-platform.release" -}}
{{- $name := include "npu-platform.clusterName" . -}}
{{- if gt (len $name) 63 }}{{ printf "%s-%s" ($name | trunc 50 | trimSuffix "-") ($name | sha256sum | trunc 12) }}{{ else }}{{ $name }}{{ end -}}
{{- end -}}

{{- define "npu-platform.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* Name of a component's objects. Takes (dict "root" $ "component" "guard"). */}}
{{- define "npu-platform.componentName" -}}
{{- printf "%s-%s" (include "npu-platform.fullname" .root) .component -}}
{{- end -}}

{{/*
What selects a component's pods; immutable, so no version. Takes (dict "root" $ "component" "guard"),
and "variant" where a component has a second set of pods.
*/}}
{{- define "npu-platform.selectorLabels" -}}
app.kubernetes.io/name: {{ include "npu-platform.name" .root }}{{ with .variant }}-{{ . }}{{ end }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/*
What finds a component's pods, of all its variants. Takes (dict "root" $ "component" "guard").
*/}}
{{- define "npu-platform.findingLabels" -}}
app.kubernetes.io/part-of: npu-platform
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/*
Labels of every object. A user's label of the same name would stand there twice, which the API
server refuses. Takes (dict "root" $ "component" "guard").
*/}}
{{- define "npu-platform.labels" -}}
{{ include "npu-platform.selectorLabels" . }}
app.kubernetes.io/part-of: npu-platform
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with omit .root.Values.commonLabels "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/part-of" "app.kubernetes.io/managed-by" "app.kubernetes.io/version" "helm.sh/chart" }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Reference of an image: registry/repository:tag, or @digest, which wins.
Takes (dict "root" $ "image" .Values.guard.image).
*/}}
{{- define "npu-platform.image" -}}
{{- $registry := .root.Values.image.registry -}}
{{- with (.root.Values.global).imageRegistry -}}{{- $registry = . -}}{{- end -}}
{{- $name := .image.repository -}}
{{- if $registry -}}{{- $name = printf "%s/%s" (trimSuffix "/" $registry) .image.repository -}}{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (.image.tag | default .root.Values.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{/* Name of a component's ServiceAccount. Takes (dict "root" $ "component" "guard"). */}}
{{- define "npu-platform.serviceAccountName" -}}
{{- $account := (index .root.Values .component).serviceAccount -}}
{{- if $account.create -}}
{{- $account.name | default (include "npu-platform.componentName" .) -}}
{{- else -}}
{{- $account.name | default "default" -}}
{{- end -}}
{{- end -}}
