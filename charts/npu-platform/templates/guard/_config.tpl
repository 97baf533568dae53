{{/* Configuration file of the guard. Takes the root. */}}
{{- define "npu-platform.guard.config" -}}
mode: {{ .Values.guard.mode }}
taint: {{ .Values.guard.taint }}
thresholds:
  {{- include "npu-platform.thresholds" . | nindent 2 }}
scrape:
  {{- toYaml .Values.guard.scrape | nindent 2 }}
  {{- with .Values.exporter.tls }}
  {{- if .secretName }}
  tls:
    caFile: /etc/npu-platform-exporter/ca.crt
    serverName: {{ .serverName }}
    {{- if .clientSecretName }}
    certFile: /etc/npu-platform-exporter/tls.crt
    keyFile: /etc/npu-platform-exporter/tls.key
    {{- end }}
  {{- end }}
  {{- end }}
source: {{ .Values.guard.source }}
{{- if eq .Values.guard.source "prometheus" }}
{{- $prometheus := .Values.guard.prometheus }}
prometheus:
  url: {{ $prometheus.url | quote }}
  matchers: {{ $prometheus.matchers | quote }}
  maxAgeSeconds: {{ $prometheus.maxAgeSeconds }}
  timeoutSeconds: {{ $prometheus.timeoutSeconds }}
  insecureSkipVerify: {{ $prometheus.insecureSkipVerify }}
  scrapeWarm: {{ dig "scrapeWarm" true $prometheus }}
  {{- $keys := ternary (list "token" "ca") (list "username" "password" "ca") (ne $prometheus.secretKeys.token "") }}
  {{- range $key := $keys }}
  {{- with index $prometheus.secretKeys $key }}
  {{ $key }}File: {{ printf "/etc/npu-platform-prometheus/%s" . | quote }}
  {{- end }}
  {{- end }}
{{- end }}
missingData: {{ .Values.guard.missingData }}
forgetAfterSeconds: {{ .Values.guard.forgetAfterSeconds }}
manualPauseSeconds: {{ .Values.guard.manualPauseSeconds }}
observeVendors: {{ toJson .Values.guard.observeVendors }}
includeControlPlane: {{ .Values.guard.includeControlPlane }}
resources: {{ include "npu-platform.plugin.resources" . }}
budget:
  {{- toYaml .Values.guard.budget | nindent 2 }}
storm:
  {{- toYaml .Values.guard.storm | nindent 2 }}
eviction:
  {{- toYaml .Values.guard.eviction | nindent 2 }}
{{- if include "npu-platform.plugin.anyDra" . }}
dra:
  enabled: true
  {{- toYaml .Values.guard.dra | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The sentence after "running Pods stay" where some are evicted. Takes the root. */}}
{{- define "npu-platform.guard.evictionNote" -}}
{{- with .Values.guard.eviction -}}
{{- if and .enabled .states }}.
Those with an NPU are evicted in the state {{ join " or " .states }} (guard.eviction){{ end -}}
{{- end -}}
{{- end -}}
