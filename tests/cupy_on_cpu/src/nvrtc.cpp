// NVRTC: CUDA C++ is compiled by g++ as host code into a shared object, which stands for the cubin. CuPy caches it on
// disk. cuda_for_host.h defines what CUDA C++ has beyond C++.
#include <nvrtc.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <chrono>
#include <cstdlib>
#include <regex>
#include <set>
#include <vector>
#include "internal.h"
extern char** environ;

typedef std::string String;

struct Program {
  String source, log, code;
  std::vector<String> expressions;   // instantiations of templates that are kernels
  std::map<String, String> lowered;  // expression -> symbol
};
static Program* program(nvrtcProgram p) { return (Program*)p; }

// Text and files
// -------------------------------------------------------------------------------------------------------

static String file_text(const String& path) {
  String text;
  FILE* file = fopen(path.c_str(), "rb");
  if (!file) return text;
  char buffer[65536];
  size_t n;
  while ((n = fread(buffer, 1, sizeof buffer, file)) > 0) text.append(buffer, n);
  fclose(file);
  return text;
}

static bool write_file(const String& path, const String& text) {
  FILE* file = fopen(path.c_str(), "wb");
  if (!file) return false;
  bool complete = fwrite(text.data(), 1, text.size(), file) == text.size();
  return fclose(file) == 0 && complete;
}

static bool contains(const String& text, const char* word) { return text.find(word) != String::npos; }
static bool starts_with(const String& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

static uint64_t fnv1a(const String& text) {
  uint64_t hash = 1469598103934665603ull;
  for (unsigned char c : text) {
    hash ^= c;
    hash *= 1099511628211ull;
  }
  return hash;
}

static String without_comments(const String& text) {
  String out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); i++) {
    if (text.compare(i, 2, "//") == 0) {
      while (i < text.size() && text[i] != '\n') i++;
      out += '\n';
    } else if (text.compare(i, 2, "/*") == 0) {
      size_t end = text.find("*/", i + 2);
      i = end == String::npos ? text.size() : end + 1;
      out += ' ';
    } else {
      out += text[i];
    }
  }
  return out;
}

// Run a program with its output in `output`; its exit status, or -1.
static int run(const std::vector<String>& arguments, String& output, const String& log_path) {
  std::vector<char*> argv;
  for (auto& a : arguments) argv.push_back((char*)a.c_str());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log_path.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid;
  int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error) {
    output = strerror(error);
    return -1;
  }
  int status;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  output = file_text(log_path);
  unlink(log_path.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Compilation
// ----------------------------------------------------------------------------------------------------------

struct Options {
  std::vector<String> include_and_define;
  String standard = "-std=c++17";
  bool to_ptx = false;  // CuPy asks for PTX only to have a key for its cache
};

static Options read_options(int count, const char* const* options) {
  Options out;
  for (int i = 0; i < count; i++) {
    String o = options[i];
    if (starts_with(o, "-arch=compute_") || starts_with(o, "--gpu-architecture=compute_")) out.to_ptx = true;
    if (starts_with(o, "-I") || starts_with(o, "-D") || starts_with(o, "-U")) out.include_and_define.push_back(o);
    if (starts_with(o, "--std=")) out.standard = o.substr(1);
    if (starts_with(o, "-std=")) out.standard = o;
  }
  if (out.standard == "-std=c++11" || out.standard == "-std=c++14") out.standard = "-std=c++17";
  return out;
}

// How launch.cpp has to run the kernels of this text.
static int kernel_flags(const String& text) {
  for (const char* word : {"__syncthreads", "__shfl", "__syncwarp", "__ballot", "__any", "__all", "__shared__"})
    if (contains(text, word)) return NEEDS_FIBERS;
  for (const char* word : {"threadIdx", "blockIdx", "blockDim", "gridDim"})
    if (contains(text, word)) return 0;
  return contains(text, "CUPY_FOR") ? IS_ELEMENTWISE : 0;
}

// Symbols for one kernel, which driver.cpp looks up: one that runs a thread, one that checks pointer arguments.
static String entry_points(const String& symbol, const String& expression) {
  const String exported = "extern \"C\" __attribute__((visibility(\"default\"))) void ";
  return exported + "__rig_l_" + symbol + "(void** p) { __rig_call(&" + expression + ", p); }\n" +  //
         exported + "__rig_c_" + symbol + "(void** p) { __rig_check(&" + expression + ", p); }\n";
}

// The source as host code, with entry points for its kernels; `names` receives the kernels that are not templates.
static String host_source(Program* p, std::set<String>& names, int& flags) {
  String text = without_comments(p->source);
  // extern __shared__ T name[]; becomes a pointer to memory that the launch provides
  std::regex dynamic_shared(R"(extern\s+__shared__\s+(?:__align__\(\d+\)\s+)?([\w:<> ]+?)\s*(\w+)\s*\[\s*\]\s*;)");
  text = std::regex_replace(text, dynamic_shared, "$1* $2 = reinterpret_cast<$1*>(__rig.dynamic_shared);");
  flags = kernel_flags(text);
  String tail =
      "\nextern \"C\" __attribute__((visibility(\"default\"))) int __rig_flags = " + std::to_string(flags) + ";\n";
  std::regex kernel(R"(__global__\s+(?:void\s+)?(?:__launch_bounds__\s*\([^)]*\)\s*)?(?:void\s+)?(\w+)\s*\()");
  for (std::sregex_iterator it(text.begin(), text.end(), kernel), end; it != end; ++it) {
    size_t at = it->position(), from = text.find_last_of(";}{", at);
    if (from == String::npos) from = 0;
    if (contains(text.substr(from, at - from), "template")) continue;
    String name = (*it)[1];
    if (names.insert(name).second) tail += entry_points(name, name);
  }
  int number = 0;
  for (auto& expression : p->expressions) {
    String symbol = "expression_" + std::to_string(number++) + "_" + std::to_string(fnv1a(expression) % 1000000);
    String bare = starts_with(expression, "&") ? expression.substr(1) : expression;
    if (names.count(bare)) {
      p->lowered[expression] = bare;
    } else {
      p->lowered[expression] = symbol;
      tail += entry_points(symbol, bare);
    }
  }
  return text + tail;
}

static std::vector<String> compiler_arguments(const Program* p, const Options& options) {
  bool fma = setting("RIG_FMA", false);
  std::vector<String> arguments = {"g++",
                                   "-shared",
                                   "-fPIC",
                                   "-O1",
                                   "-w",
                                   options.standard,
                                   "-fno-strict-aliasing",
                                   "-fno-gnu-unique",
                                   "-fvisibility=hidden",
                                   "-fpermissive",
                                   "-Wl,-Bsymbolic",
                                   fma ? "-ffp-contract=fast" : "-ffp-contract=off",
                                   "-fwrapv",
                                   "-fno-math-errno"};
  if (fma) arguments.insert(arguments.end(), {"-march=native", "-fexpensive-optimizations"});
  // The precompiled header was made with these options and without definitions; it holds for most of CuPy's kernels.
  bool precompiled = options.standard == "-std=c++17" && !fma && contains(p->source, "#include <cupy/complex.cuh>");
  for (auto& o : options.include_and_define)
    if (!starts_with(o, "-I")) precompiled = false;
  arguments.push_back("-include");
  arguments.push_back(String(rig_home()) + (precompiled ? "/src/precompiled.h" : "/src/cuda_for_host.h"));
  arguments.insert(arguments.end(), options.include_and_define.begin(), options.include_and_define.end());
  return arguments;
}

// Keep a text that g++ refuses, with its arguments and messages, in RIG_HOME/failed.
static void keep_failure(const String& text, const std::vector<String>& arguments, const String& log) {
  String folder = String(rig_home()) + "/failed", command;
  mkdir(folder.c_str(), 0777);
  for (auto& a : arguments) command += a + " ";
  char name[64];
  snprintf(name, sizeof name, "/%016llx.cpp", (unsigned long long)fnv1a(text));
  write_file(folder + name, text + "\n/*\n" + command + "\n" + log + "\n*/\n");
}

API nvrtcResult nvrtcCompileProgram(nvrtcProgram handle, int count, const char* const* option_list) {
  Program* p = program(handle);
  Options options = read_options(count, option_list);
  if (options.to_ptx) {  // the key of CuPy's cache changes with our headers
    static const String headers =
        file_text(String(rig_home()) + "/src/cuda_for_host.h") + file_text(String(rig_home()) + "/src/rig.h");
    char tag[64];
    snprintf(tag, sizeof tag, "// cupy-on-cpu %016llx\n", (unsigned long long)fnv1a(headers));
    p->code = tag;
    return NVRTC_SUCCESS;
  }
  std::set<String> names;
  int flags;
  String text = host_source(p, names, flags);
  char folder[] = "/tmp/rig-compile-XXXXXX";
  if (!mkdtemp(folder)) return NVRTC_ERROR_INTERNAL_ERROR;
  String source = String(folder) + "/kernel.cpp", object = String(folder) + "/kernel.so";
  if (!write_file(source, text)) return NVRTC_ERROR_INTERNAL_ERROR;
  std::vector<String> arguments = compiler_arguments(p, options);
  arguments.insert(arguments.end(), {source, "-o", object});
  auto start = std::chrono::steady_clock::now();
  int status = run(arguments, p->log, String(folder) + "/log");
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (status == 0) {
    p->code = file_text(object);
    Guard guard(state_lock);
    counters.compiles++;
  } else {
    keep_failure(text, arguments, p->log);
  }
  if (logging())
    fprintf(stderr, "rig: compiled %s in %.2f s\n", names.empty() ? "?" : names.begin()->c_str(), seconds.count());
  unlink(source.c_str());
  unlink(object.c_str());
  rmdir(folder);
  return status == 0 ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}

// The rest of the interface
// --------------------------------------------------------------------------------------------

API const char* nvrtcGetErrorString(nvrtcResult r) {
  return r == NVRTC_SUCCESS             ? "NVRTC_SUCCESS"
         : r == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION"
                                        : "NVRTC_ERROR";
}
API nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return NVRTC_SUCCESS;
}
API nvrtcResult nvrtcCreateProgram(nvrtcProgram* p, const char* source, const char*, int, const char* const*,
                                   const char* const*) {
  Program* created = new Program;
  created->source = source;
  *p = (nvrtcProgram)created;
  return NVRTC_SUCCESS;
}
API nvrtcResult nvrtcDestroyProgram(nvrtcProgram* p) {
  delete program(*p);
  *p = nullptr;
  return NVRTC_SUCCESS;
}
API nvrtcResult nvrtcAddNameExpression(nvrtcProgram p, const char* expression) {
  program(p)->expressions.push_back(expression);
  return NVRTC_SUCCESS;
}
API nvrtcResult nvrtcGetLoweredName(nvrtcProgram p, const char* expression, const char** out) {
  auto& lowered = program(p)->lowered;
  auto it = lowered.find(expression);
  if (it == lowered.end()) return NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
  *out = it->second.c_str();
  return NVRTC_SUCCESS;
}
API nvrtcResult nvrtcGetNumSupportedArchs(int* n) {
  *n = 1;
  return NVRTC_SUCCESS;
}
API nvrtcResult nvrtcGetSupportedArchs(int* archs) {
  archs[0] = 80;
  return NVRTC_SUCCESS;
}

static nvrtcResult size_of(const String& text, size_t* n) {
  *n = text.size() + 1;
  return NVRTC_SUCCESS;
}
static nvrtcResult copy_of(const String& text, char* out, size_t n) {
  memcpy(out, text.c_str(), n);
  return NVRTC_SUCCESS;
}
API nvrtcResult nvrtcGetPTXSize(nvrtcProgram p, size_t* n) { return size_of(program(p)->code, n); }
API nvrtcResult nvrtcGetPTX(nvrtcProgram p, char* out) {
  return copy_of(program(p)->code, out, program(p)->code.size() + 1);
}
API nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t* n) {
  *n = program(p)->code.size();
  return NVRTC_SUCCESS;
}
API nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char* out) {
  return copy_of(program(p)->code, out, program(p)->code.size());
}
API nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t* n) { return size_of(program(p)->log, n); }
API nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char* out) {
  return copy_of(program(p)->log, out, program(p)->log.size() + 1);
}
