{{/*
Puts back the defaults that are missing in the values: `plugin:` left empty in a values file, a block
set to null, or `--reuse-values` with the values of an older chart, which lacks what is new. Any
template may be the first one, so each that reads values starts with this; all see what it changes.
Takes the root.
*/}}
{{- define "npu-platform.defaults" -}}
{{- if not (hasKey .Values "defaultsAreIn") -}}
{{- $_ := set .Values "defaultsAreIn" true -}}
{{- include "npu-platform.fill" (dict "into" .Values "from" (.Files.Get "files/defaults.json" | fromJson)) -}}
{{- end -}}
{{- end -}}

{{/* Settings of a component that may be absent: nothing is rendered for them then. */}}
{{- define "npu-platform.optional" -}}
{{- list "affinity" "annotations" "extraArgs" "extraEnv" "extraVolumeMounts" "extraVolumes" "nodeSelector" "podAnnotations" "podLabels" "priorityClassName" "resources" "seLinuxOptions" "tolerations" | toJson -}}
{{- end -}}

{{/*
Adds what is missing. Maps with keys of the user's choosing are taken as they are.
Takes (dict "into" VALUES "from" DEFAULTS), and "nested" below the first level.
*/}}
{{- define "npu-platform.fill" -}}
{{- $into := .into -}}
{{- $optional := ternary (include "npu-platform.optional" . | fromJsonArray) list (hasKey . "nested") -}}
{{- range $key, $default := .from -}}
{{- $given := get $into $key -}}
{{- if has $key $optional -}}
{{- else if or (not (hasKey $into $key)) (kindIs "invalid" (index $into $key)) -}}
{{- $_ := set $into $key $default -}}
{{- else if and (kindIs "map" $default) (kindIs "map" $given) (not (has $key (list "resourceNames" "updateStrategy"))) -}}
{{- include "npu-platform.fill" (dict "into" $given "from" $default "nested" true) -}}
{{- end -}}
{{- end -}}
{{- end -}}
