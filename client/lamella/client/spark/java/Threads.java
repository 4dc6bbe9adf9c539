package lamella;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.locks.Lock;
import py4j.CallbackClient;
import py4j.ClientServerConnection;
import py4j.PythonClient;

/** The threads of the JVM that call Python, and their connections. */
public final class Threads {
    private final List open = new ArrayList();
    private int limit;

    /** Returns whether the current call comes, through Python, from a class or method of Spark of this name. */
    public static boolean isCalledFrom(String name) {
        StackTraceElement[] frames = Thread.currentThread().getStackTrace();
        for (int at = 0; at < frames.length; at++) {
            if (frames[at].getClassName().contains(name) || frames[at].getMethodName().contains(name)) {
                return true;
            }
        }
        return false;
    }

    /** Returns the sockets of the connections that are noted. */
    public List sockets() {
        List found = new ArrayList();
        synchronized (open) {
            for (Iterator each = open.iterator(); each.hasNext();) {
                found.add(((Used) each.next()).connection.getSocket());
            }
        }
        return found;
    }

    /**
     * Notes the connection of the current thread. If there are more than idle connections, and more than twice as many as
     * were in use the last time, those that no thread uses are closed.
     */
    public void opened(PythonClient client, int idle) throws Exception {
        ClientServerConnection connection = client.getPerThreadConnection();
        // py4j writes answers of more than 8 KiB in parts. Without this, the second part waits until the other side has
        // acknowledged the first, about 40 ms.
        connection.getSocket().setTcpNoDelay(true);
        List seen;
        synchronized (open) {
            open.add(new Used(connection, Thread.currentThread()));
            if (open.size() <= Math.max(idle, limit)) {
                return;
            }
            seen = new ArrayList(open);
            open.clear();
        }
        List busy = closeIdle(client, seen);
        synchronized (open) {
            open.addAll(busy);
            limit = 2 * open.size();
        }
    }

    /** Closes the connections that no thread uses, and returns the others. */
    private static List closeIdle(PythonClient client, List seen) throws Exception {
        Lock lock = (Lock) member(client, "lock");
        Collection idle = (Collection) member(client, "connections");
        List busy = new ArrayList();
        List closed = new ArrayList();
        lock.lock();
        try {
            for (Iterator each = seen.iterator(); each.hasNext();) {
                Used used = (Used) each.next();
                if (isInPy4j(used.thread)) {
                    busy.add(used);
                } else {
                    used.connection.shutdown();
                    closed.add(used.connection);
                }
            }
            idle.removeAll(closed);
        } finally {
            lock.unlock();
        }
        return busy;
    }

    private static boolean isInPy4j(Thread thread) {
        StackTraceElement[] frames = thread.getStackTrace(); // empty when it has ended
        for (int at = 0; at < frames.length; at++) {
            if (frames[at].getClassName().startsWith("py4j.")) {
                return true;
            }
        }
        return false;
    }

    private static Object member(PythonClient client, String name) throws Exception {
        Field field = CallbackClient.class.getDeclaredField(name);
        field.setAccessible(true);
        return field.get(client);
    }

    private static final class Used {
        private final ClientServerConnection connection;
        private final Thread thread;

        Used(ClientServerConnection connection, Thread thread) {
            this.connection = connection;
            this.thread = thread;
        }
    }
}
