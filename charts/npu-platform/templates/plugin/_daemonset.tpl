{{/* Settings of a profile: the plugin's own, overlaid. Takes (dict "root" $ "profile" "name" or ""). */}}
{{- define "npu-platform.plugin.settings" -}}
{{- $plugin := .root.Values.plugin -}}
{{- $settings := pick $plugin "mode" "dra" "resourceNames" "library" "sharing" "deviceInjection" "containerPaths" "extraDevices" "health" "heat" "ascend" | deepCopy -}}
{{- if .profile -}}
{{- $settings = mergeOverwrite $settings (index $plugin.profiles .profile | deepCopy) -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}

{{/* Configuration file of the plugin. Takes (dict "root" $ "settings" SETTINGS). */}}
{{- define "npu-platform.plugin.config" -}}
{{- if eq .settings.mode "dra" -}}
mode: dra
dra:
  {{- toYaml .settings.dra | nindent 2 }}
{{ end -}}
resourceNames:
  {{- toYaml .settings.resourceNames | nindent 2 }}
library:
  mode: {{ .settings.library.mode }}
  searchPaths: {{ toJson .settings.library.searchPaths }}
sharing:
  {{- toYaml .settings.sharing | nindent 2 }}
deviceInjection: {{ .settings.deviceInjection }}
{{- $fixed := dict }}
{{- range $role, $path := .settings.containerPaths }}
{{- if $path }}{{ $fixed = set $fixed $role $path }}{{ end }}
{{- end }}
containerPaths: {{ toJson $fixed }}
extraDevices: {{ toJson .settings.extraDevices }}
health:
  {{- toYaml .settings.health | nindent 2 }}
heat:
  {{- toYaml (omit .settings.heat "clampDirectory") | nindent 2 }}
ascend:
  {{- toYaml .settings.ascend | nindent 2 }}
thresholds:
  {{- include "npu-platform.thresholds" .root | nindent 2 }}
{{- end -}}

{{/* Ending of the name under which NPUs are offered in slots, if they are. Takes the settings. */}}
{{- define "npu-platform.plugin.ending" -}}
{{- if and (eq .sharing.resourceName "shared") (ne (toString .sharing.slots) "1") }}.shared{{ end -}}
{{- end -}}

{{/*
All resources that any profile offers, as a JSON list. Takes the root. An NPU of one core stays
whole with a slot per core, and wholeDevices do, so the name without the ending belongs to the list.
*/}}
{{- define "npu-platform.plugin.resources" -}}
{{- $names := list -}}
{{- range $profile := prepend (keys .Values.plugin.profiles) "" -}}
{{- $settings := include "npu-platform.plugin.settings" (dict "root" $ "profile" $profile) | fromYaml -}}
{{- $ending := include "npu-platform.plugin.ending" $settings -}}
{{- range $chip, $name := $settings.resourceNames -}}
{{- $names = append $names (printf "%s%s" $name $ending) -}}
{{- if or (not $ending) (hasPrefix "ascend" $chip) (eq (toString $settings.sharing.slots) "cores") $settings.sharing.wholeDevices -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $names | uniq | sortAlpha | toJson -}}
{{- end -}}

{{/* Name of the DeviceClass of a resource: name and domain change places. Takes the resource. */}}
{{- define "npu-platform.plugin.class" -}}
{{- $parts := splitList "/" . -}}
{{ printf "%s.%s" (last $parts | lower) (first $parts) }}
{{- end -}}

{{/*
Columns for kubectl: what each node has of the resources in a list. A heading is the part of a name
that is its own, or the whole name where two would have the same.
*/}}
{{- define "npu-platform.plugin.columns" -}}
{{- $heads := list -}}
{{- range . }}{{ $heads = append $heads (splitList "/" . | last | upper) }}{{ end -}}
NODE:.metadata.name
{{- range $index, $name := . -}}
{{- $head := index $heads $index -}}
{{- if gt (sub (len $heads) (len (without $heads $head))) 1 }}{{ $head = upper $name }}{{ end -}}
,{{ $head }}:.status.allocatable.{{ replace "." "\\." $name }}
{{- end -}}
{{- end -}}

{{/* "true" where a profile hands NPUs out by claims, else nothing. Takes the root. */}}
{{- define "npu-platform.plugin.anyDra" -}}
{{- $found := list -}}
{{- range $profile := prepend (keys .Values.plugin.profiles) "" -}}
{{- $settings := include "npu-platform.plugin.settings" (dict "root" $ "profile" $profile) | fromYaml -}}
{{- if eq $settings.mode "dra" }}{{ $found = append $found true }}{{ end -}}
{{- end -}}
{{- if and .Values.plugin.enabled $found }}true{{ end -}}
{{- end -}}

{{/* "true" where a profile's Pods ask the API server for ResourceClaims. Takes the root. */}}
{{- define "npu-platform.plugin.readsClaims" -}}
{{- $found := list -}}
{{- range $profile := prepend (keys .Values.plugin.profiles) "" -}}
{{- $settings := include "npu-platform.plugin.settings" (dict "root" $ "profile" $profile) | fromYaml -}}
{{- if and (eq $settings.mode "dra") $settings.dra.readClaims }}{{ $found = append $found true }}{{ end -}}
{{- end -}}
{{- if and .Values.plugin.enabled $found }}true{{ end -}}
{{- end -}}

{{- define "npu-platform.plugin.name" -}}
{{- $name := include "npu-platform.componentName" (dict "root" .root "component" "plugin") -}}
{{- if .profile }}{{ printf "%s-%s" $name .profile }}{{ else }}{{ $name }}{{ end -}}
{{- end -}}

{{/*
Affinity: the user's, with the profile label in every node selector term (terms are alternatives).
*/}}
{{- define "npu-platform.plugin.affinity" -}}
{{- $mine := dict "key" "npu-platform.io/profile" "operator" "DoesNotExist" -}}
{{- if .profile -}}
{{- $mine = dict "key" "npu-platform.io/profile" "operator" "In" "values" (list .profile) -}}
{{- end -}}
{{- include "npu-platform.affinityWith" (dict "affinity" .root.Values.plugin.affinity "expression" $mine) -}}
{{- end -}}

{{- define "npu-platform.plugin.objects" -}}
{{- $values := .root.Values.plugin -}}
{{- $settings := include "npu-platform.plugin.settings" . | fromYaml -}}
{{- $config := include "npu-platform.plugin.config" (dict "root" .root "settings" $settings) -}}
{{- $component := dict "root" .root "component" "plugin" -}}
{{- $simulated := .root.Values.simulator.enabled -}}
{{- $kubelet := trimSuffix "/" .root.Values.kubeletDir -}}
{{- $dra := eq $settings.mode "dra" -}}
{{- $claims := and $dra $settings.dra.readClaims -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "npu-platform.plugin.name" . }}
  namespace: {{ include "npu-platform.namespace" .root }}
  labels:
    {{- include "npu-platform.labels" $component | nindent 4 }}
data:
  plugin.yaml: |
    {{- $config | nindent 4 }}
---
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ include "npu-platform.plugin.name" . }}
  namespace: {{ include "npu-platform.namespace" .root }}
  labels:
    {{- include "npu-platform.labels" $component | nindent 4 }}
spec:
  revisionHistoryLimit: {{ .root.Values.revisionHistoryLimit }}
  selector:
    matchLabels:
      {{- include "npu-platform.selectorLabels" $component | nindent 6 }}
      npu-platform.io/profile: {{ .profile | default "default" | quote }}
  updateStrategy:
    {{- include "npu-platform.updateStrategy" $values | nindent 4 }}
  template:
    metadata:
      labels:
        {{- include "npu-platform.podLabels" $component | nindent 8 }}
        npu-platform.io/profile: {{ .profile | default "default" | quote }}
        {{- if $dra }}
        npu-platform.io/mode: dra
        {{- end }}
      annotations:
        {{- include "npu-platform.podAnnotations" (dict "values" $values "config" $config) | nindent 8 }}
    spec:
      {{- include "npu-platform.podBasics" .root | nindent 6 }}
      serviceAccountName: {{ include "npu-platform.serviceAccountName" $component }}
      {{- if $claims }}
      # dra.readClaims: to ask which device a claim was given.
      {{- end }}
      automountServiceAccountToken: {{ $claims }}
      {{- include "npu-platform.placement" $values | nindent 6 }}
      affinity:
        {{- include "npu-platform.plugin.affinity" . | nindent 8 }}
      securityContext:
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: plugin
          {{- include "npu-platform.containerImage" (dict "root" .root "image" $values.image) | nindent 10 }}
          args:
            - --root=/host
            {{- if not $simulated }}
            - --proc=/proc
            {{- end }}
            - --node-prefix={{ if $simulated }}{{ include "npu-platform.simulatedBoardDir" .root }}{{ end }}
            - --kubelet-dir={{ $kubelet }}
            - --config=/etc/npu-platform/plugin.yaml
            {{- include "npu-platform.commonArgs" (dict "root" .root "values" $values) | nindent 12 }}
          {{- if or $dra $values.extraEnv }}
          env:
            {{- if $dra }}
            - name: NPU_PLUGIN_NODE_NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
            {{- end }}
            {{- with $values.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- end }}
          {{- include "npu-platform.portAndProbes" $values | nindent 10 }}
          {{- with $values.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- if $settings.health.openDevice }}
          # health.openDevice: only a privileged container may open device nodes of the host.
          securityContext:
            {{- include "npu-platform.rootContainerSecurity" .root | replace "allowPrivilegeEscalation: false" "privileged: true" | nindent 12 }}
          {{- else }}
          # uid 0 without a capability: the kubelet's socket directories belong to root.
          securityContext:
            {{- include "npu-platform.rootContainerSecurity" .root | nindent 12 }}
            capabilities:
              drop: [ALL]
          {{- end }}
          volumeMounts:
            - {name: config, mountPath: /etc/npu-platform, readOnly: true}
            {{- if $dra }}
            - {name: plugins, mountPath: {{ $kubelet }}/plugins}
            - {name: plugins-registry, mountPath: {{ $kubelet }}/plugins_registry}
            {{- else }}
            - {name: device-plugins, mountPath: {{ $kubelet }}/device-plugins}
            {{- end }}
            - {name: pod-resources, mountPath: {{ $kubelet }}/pod-resources, readOnly: true}
            {{- if $simulated }}
            - {name: board, mountPath: /host, readOnly: true, mountPropagation: HostToContainer}
            {{- else }}
            - {name: sys, mountPath: /host/sys, readOnly: true, mountPropagation: HostToContainer}
            - {name: dev, mountPath: /host/dev, readOnly: true, mountPropagation: HostToContainer}
            {{- range $index, $path := $settings.library.hostDirs }}
            - {name: library-{{ $index }}, mountPath: {{ printf "/host%s" $path }}, readOnly: true}
            {{- end }}
            {{- end }}
            {{- if $settings.heat.clampFrequency }}
            # heat.clampFrequency: the one writable path of the board.
            - {name: devfreq, mountPath: {{ printf "/host%s" $settings.heat.clampDirectory }}}
            - {name: state, mountPath: /run/npu-platform}
            {{- end }}
            {{- if or $dra (eq $settings.deviceInjection "cdi") }}
            - {name: cdi, mountPath: /var/run/cdi}
            {{- end }}
            {{- with $values.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: config
          configMap:
            name: {{ include "npu-platform.plugin.name" . }}
        {{- if $dra }}
        - name: plugins
          hostPath: {path: {{ $kubelet }}/plugins, type: Directory}
        - name: plugins-registry
          hostPath: {path: {{ $kubelet }}/plugins_registry, type: Directory}
        {{- else }}
        - name: device-plugins
          hostPath: {path: {{ $kubelet }}/device-plugins, type: Directory}
        {{- end }}
        - name: pod-resources
          hostPath: {path: {{ $kubelet }}/pod-resources, type: Directory}
        {{- if $simulated }}
        - name: board
          hostPath: {path: {{ include "npu-platform.simulatedBoardDir" .root }}, type: DirectoryOrCreate}
        {{- else }}
        - name: sys
          hostPath: {path: /sys, type: Directory}
        - name: dev
          hostPath: {path: /dev, type: Directory}
        {{- range $index, $path := $settings.library.hostDirs }}
        - name: library-{{ $index }}
          hostPath: {path: {{ $path }}, type: Directory}
        {{- end }}
        {{- end }}
        {{- if $settings.heat.clampFrequency }}
        - name: devfreq
          hostPath: {path: {{ printf "%s%s" ($simulated | ternary (include "npu-platform.simulatedBoardDir" .root) "") $settings.heat.clampDirectory }}, type: Directory}
        - name: state
          hostPath: {path: /run/npu-platform, type: DirectoryOrCreate}
        {{- end }}
        {{- if or $dra (eq $settings.deviceInjection "cdi") }}
        - name: cdi
          hostPath: {path: /var/run/cdi, type: DirectoryOrCreate}
        {{- end }}
        {{- with $values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}
